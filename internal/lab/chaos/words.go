package main

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// orders are the first line that a member reads.
type orders struct {
	Member    int
	Upstream  string // its URL
	Redis     []string
	Master    string // the name that sentinels know; "": Redis is no list of sentinels
	Cluster   bool   // Redis are nodes of a cluster
	Outage    string
	Window    int // starts in a second
	InFlight  int
	Namespace string
}

// An order is each further line. The end of the lines ends the member.
type order struct {
	Window int  // the limit of the sliding window from now on, or 0 for no change
	Rest   bool // let no caller come any more, and tell the remains
}

// A word is a line that a member says. One of its parts is set.
type word struct {
	Ready   bool         `json:",omitempty"`
	Changed bool         `json:",omitempty"` // an order was obeyed
	Call    *call        `json:",omitempty"`
	Stall   *fleet.Stall `json:",omitempty"` // the machine, or a signal, held the member up
	Left    *remains     `json:",omitempty"` // the answer to Rest
}

// A call is what one caller did. Its times count from the Unix epoch.
type call struct {
	ID       string
	Kind     callerKind
	Asked    time.Duration
	Returned time.Duration
	By       time.Duration `json:",omitempty"` // its deadline, or 0
	Err      string        `json:",omitempty"` // what kind of error; "": it was served
	Text     string        `json:",omitempty"` // the error itself, if nobody expects it
	Where    string        `json:",omitempty"` // where it was when it had been late for too long
}

// String describes a call that failed.
func (c call) String() string {
	text := fmt.Sprintf("call %s, %s after %v", c.ID, c.Err, (c.Returned - c.Asked).Round(time.Millisecond))
	if c.Text != "" {
		text += ", " + c.Text
	}
	return text
}

// remains are the requests and goroutines of a member that rests.
type remains struct {
	Goroutines int // of the library, or more than there were at first
	After      time.Duration
	Where      string `json:",omitempty"` // their roles
	Events     map[string]int
}
