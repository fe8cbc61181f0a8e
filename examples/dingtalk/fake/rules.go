package fake

import (
	"net/http"
	"strconv"
	"time"
)

// A call is one arrival while it is judged; the server is locked.
type call struct {
	*Server
	Arrival
	api        string
	credential string
	delay      time.Duration
}

// refuse notes why the call is refused.
func (c *call) refuse(code string, a answer) *answer {
	c.Refusal = code
	return &a
}

// judge applies the rules in the order in which an upstream has them: the
// address before anything is looked at, the robot's counter before its token.
func (c *call) judge(e endpoint) *answer {
	if c.overAddress() {
		return c.refuse(Banned, c.options.ban())
	}
	if e.serve == nil {
		return c.refuse("unknown path", e.unknown)
	}
	if e.robot {
		return c.judgeRobot()
	}
	app, refusal := c.authenticate(e)
	if refusal != nil {
		return refusal
	}
	c.App = app
	switch {
	case c.overCrowd():
		return c.refuse("90002", crowded(c.api, c.options.PerAPI, c.At.Add(c.options.Skew)))
	case c.overSecond():
		return c.refuse("90018", c.options.tooFast(c.api))
	case e.metered && c.overMonth():
		return c.refuse("90020", usedUp(c.api, c.metered, c.options.PerMonth))
	}
	return nil
}

// overAddress reports whether the address is banned, and bans it if this call
// is one too many.
func (c *call) overAddress() bool {
	o, now := c.options, c.At
	if now.Before(c.banned[c.Address]) {
		if o.BanProlongs {
			c.banned[c.Address] = now.Add(o.BanFor)
		}
		return true
	}
	w := at(c.addresses, c.Address)
	since := now.Add(-o.AddressWindow)
	if o.FixedAddress {
		since = now.Truncate(o.AddressWindow).Add(-1)
	}
	count := w.after(since)
	w.add(now)
	if count < o.Address {
		return false
	}
	*w = nil // a ban is longer than the window, however it is scaled
	c.bans++
	c.banned[c.Address] = now.Add(o.BanFor)
	return true
}

// overCrowd counts clock seconds: the refusal names the second.
func (c *call) overCrowd() bool {
	if c.options.PerAPI == 0 {
		return false
	}
	w := at(c.crowds, c.api)
	count := w.after(startOfSecond(c.At))
	w.add(c.At)
	return count >= c.options.PerAPI
}

// overSecond is the rule that a pull meets first: calls of one app to one API.
func (c *call) overSecond() bool {
	o := c.options
	w := at(c.seconds, appAPI{c.App, c.api})
	since := c.At.Add(-time.Second)
	if o.FixedSecond {
		since = startOfSecond(c.At)
	}
	count := w.after(since)
	over := count >= o.PerSecond
	switch {
	case over && o.Queue:
		start := (*w)[count-o.PerSecond].Add(time.Second)
		w.add(start)
		c.delay = start.Sub(c.At)
		return false
	case !over || o.CountRefused:
		w.add(c.At)
	}
	return over
}

// startOfSecond returns the last moment before the clock second of t.
func startOfSecond(t time.Time) time.Time { return t.Truncate(time.Second).Add(-1) }

// overMonth counts a metered call in the calendar month of Beijing.
func (c *call) overMonth() bool {
	month := c.At.Add(c.options.Skew).In(beijing).Format("2006-01")
	if month != c.month {
		c.month, c.Server.metered = month, 0
	}
	c.Server.metered++
	return c.Server.metered > c.options.PerMonth
}

// judgeRobot counts every message for a token, whether the token exists or
// not, and closes the token for longer than it counts.
func (c *call) judgeRobot() *answer {
	o, now, robot := c.options, c.At, c.credential
	w := at(c.robots, robot)
	count := w.after(now.Add(-time.Minute))
	w.add(now)
	if count >= o.RobotPerMinute && !now.Before(c.closed[robot]) {
		c.closed[robot] = now.Add(o.RobotClosed)
	}
	if now.Before(c.closed[robot]) {
		return c.refuse(strconv.Itoa(o.RobotCode), plain(o.RobotCode, robotTexts[o.RobotCode]))
	}
	if robot != o.Robot {
		return c.refuse("300005", plain(300005, "token is not exist"))
	}
	return nil
}

// authenticate returns the app that a call belongs to.
func (c *call) authenticate(e endpoint) (string, *answer) {
	if e.login {
		return c.credential, nil // the endpoint itself checks the secret
	}
	t, known := c.tokens[c.credential]
	if known && c.At.Before(t.end) {
		return t.app, nil
	}
	const text = "不合法的access_token"
	switch {
	case !isNew(c.api):
		return "", c.refuse("40014", wrapped("40014", text))
	case c.credential == "":
		return "", c.refuse("AuthenticationFailed.MissingParameter", gateway(http.StatusBadRequest,
			"AuthenticationFailed.MissingParameter", "x-acs-dingtalk-access-token is missing"))
	}
	return "", c.refuse("InvalidAuthentication", gateway(http.StatusBadRequest, "InvalidAuthentication", text))
}
