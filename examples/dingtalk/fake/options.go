// Package fake is a DingTalk that lives in this process. It answers a small
// part of both families of DingTalk's API from a made-up company, counts every
// arrival, and refuses what the real one is documented to refuse, with the
// bodies that the real one sends.
package fake

import (
	"cmp"
	"net/http"
	"time"
)

// The credentials that a fake with no Apps and no Robot accepts.
const (
	DefaultAppKey    = "dingexample"
	DefaultAppSecret = "dingexample-secret"
	DefaultRobot     = "robot-example"
)

// Options says how large the company is and how strict the fake. The zero
// value has the published numbers of the standard edition; what the
// documentation leaves open is a field. Numbers can be scaled down for a quick
// test; the shape of a rule stays.
type Options struct {
	Apps  map[string]string // app key to app secret. Defaults to DefaultAppKey and DefaultAppSecret
	Robot string            // the token of the one robot that exists. Defaults to DefaultRobot

	People      int // in the company. Defaults to 3000
	Departments int // in the company, the root included. Defaults to one for 20 people

	PerSecond    int  // calls in a second per app and API. Defaults to 20; 40 and 60 in the larger editions
	FixedSecond  bool // count clock seconds. Defaults to any interval of a second
	CountRefused bool // refused calls take up room too. Defaults to false
	Queue        bool // calls above PerSecond are held, not refused. Defaults to false
	Unwrapped    bool // 90018 stands in errcode itself. Defaults to false: errcode 88 with a sub_code

	PerAPI int // calls of all apps together to one API in a clock second. Defaults to 0: any number

	Address       int           // calls from one address in any AddressWindow. Defaults to 10000
	AddressWindow time.Duration // Defaults to 20 s
	BanFor        time.Duration // how long an address is then refused everything. Defaults to 5 minutes
	BanStatus     int           // the HTTP status of a banned answer. Defaults to 200
	FixedAddress  bool          // count AddressWindows of the clock. Defaults to any interval
	BanHTML       bool          // a banned answer is an HTML page. Defaults to false: JSON
	BanMedia      string        // what that JSON calls itself. Defaults to JSON
	BanNoWait     bool          // it does not say how long. Defaults to false: in minutes
	BanProlongs   bool          // a call during a ban starts the ban anew. Defaults to false

	RobotPerMinute int           // messages in any minute per robot token. Defaults to 20
	RobotClosed    time.Duration // how long the robot is then closed. Defaults to 10 minutes
	RobotCode      int           // of that refusal. Defaults to 660026; 130101 and 410100 are known

	PerMonth int // calls of the company to metered APIs in a month. Defaults to 5000

	Skew time.Duration // how far the fake's calendar, Date header included, is ahead. Defaults to 0
}

// withDefaults fills in what was left zero.
func (o Options) withDefaults() Options {
	if o.Apps == nil {
		o.Apps = map[string]string{DefaultAppKey: DefaultAppSecret}
	}
	o.Robot = cmp.Or(o.Robot, DefaultRobot)
	o.People = cmp.Or(o.People, 3000)
	o.Departments = cmp.Or(o.Departments, max(1, o.People/20))
	o.PerSecond = cmp.Or(o.PerSecond, 20)
	o.Address = cmp.Or(o.Address, 10000)
	o.AddressWindow = cmp.Or(o.AddressWindow, 20*time.Second)
	o.BanFor = cmp.Or(o.BanFor, 5*time.Minute)
	o.BanStatus = cmp.Or(o.BanStatus, http.StatusOK)
	o.RobotPerMinute = cmp.Or(o.RobotPerMinute, 20)
	o.RobotCode = cmp.Or(o.RobotCode, 660026)
	o.RobotClosed = cmp.Or(o.RobotClosed, 10*time.Minute)
	o.PerMonth = cmp.Or(o.PerMonth, 5000)
	return o
}
