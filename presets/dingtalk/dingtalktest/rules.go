package dingtalktest

import (
	"net/http"
	"strings"
	"time"
)

// An Arrival is one call that reached a [Server].
type Arrival struct {
	At      time.Time
	API     string // the pattern of the API; the path if there is no such API
	App     string // the application; "" if the call does not tell
	Address string // where the call came from
	Refusal string // "" if served, [Banned], "unknown" if there is no such API, or a code: 90018 for both families
}

// Banned is the Refusal of a call from a banned address.
const Banned = "banned"

// rules count calls, and remember what still counts.
type rules struct {
	options Options
	windows map[window][]time.Time
	closed  map[window]time.Time // until when addresses are banned and robots closed
	bans    int                  // how many there were
	month   string               // the calendar month of the last metered call, in Beijing
	metered int                  // calls in the month
}

// A window names calls that are counted together, such as the calls of one API by one
// application. by is the application, the address or the robot, where the rule counts by one.
type window struct{ rule, by, api string }

func newRules(o Options) *rules {
	return &rules{options: o, windows: make(map[window][]time.Time), closed: make(map[window]time.Time)}
}

// A call is one arrival while it is judged.
type call struct {
	Arrival
	*http.Request
	*rules
}

// refuse notes why the call is refused, and returns h, which answers it.
func (c *call) refuse(code string, h http.HandlerFunc) http.HandlerFunc {
	c.Refusal = code
	return h
}

// judge applies the rules in the order in which DingTalk has them: the address
// before anything is looked at, the robot's counter before its token. It returns
// what refuses the call, or nil.
func (c *call) judge() http.HandlerFunc {
	path := c.URL.Path
	if c.overAddress() {
		return c.refuse(Banned, c.options.BanAnswer)
	}
	if c.API == "" {
		return c.refuse("unknown", unknown(path))
	}
	if path == "/robot/send" {
		return c.judgeRobot()
	}
	app, known := appOf(c.Request)
	if !known {
		return c.refuse("40014", invalidToken(path))
	}
	c.App = app
	switch {
	case c.overCrowd():
		return c.refuse("90002", crowded(path, c.options.PerAPI, c.At))
	case c.overSecond():
		return c.refuse("90018", tooFast(path))
	case c.overMonth():
		return c.refuse("90020", usedUp(path, c.metered, c.options.Edition.PerMonth))
	}
	return nil
}

// within returns how many calls of a window came after a moment, and forgets the
// earlier ones. A call at exactly one interval's length after another does not
// share an interval with it.
func (c *call) within(w window, after time.Time) int {
	calls := c.windows[w]
	for len(calls) > 0 && !calls[0].After(after) {
		calls = calls[1:]
	}
	c.windows[w] = calls
	return len(calls)
}

// add counts the call in a window.
func (c *call) add(w window) { c.windows[w] = append(c.windows[w], c.At) }

// since returns the moment after which calls count together with this one: per ago or, if windows are
// fixed, just before the window of this call begins.
func (c *call) since(per time.Duration, fixed bool) time.Time {
	if fixed {
		return c.At.Truncate(per).Add(-1)
	}
	return c.At.Add(-per)
}

// overAddress reports whether the address is banned, and bans the address if
// this call is one too many.
func (c *call) overAddress() bool {
	w := window{rule: "address", by: c.Address}
	if c.At.Before(c.closed[w]) {
		if c.options.BanProlongs {
			c.closed[w] = c.At.Add(c.options.Ban)
		}
		return true
	}
	count := c.within(w, c.since(20*time.Second, c.options.FixedWindows))
	c.add(w)
	if count < c.options.IPLimit {
		return false
	}
	delete(c.windows, w) // a ban may be shorter than the window
	c.bans++
	c.closed[w] = c.At.Add(c.options.Ban)
	return true
}

// overCrowd counts the calls of the API by all applications, in seconds of the clock, because the
// refusal names such a second. It reports whether this call is one too many.
func (c *call) overCrowd() bool {
	w := window{rule: "crowd", api: c.API}
	count := c.within(w, c.since(time.Second, true))
	c.add(w)
	return c.options.PerAPI > 0 && count >= c.options.PerAPI
}

// overSecond counts the calls of the API by the application within a second, and reports whether this
// call is one too many.
func (c *call) overSecond() bool {
	w := window{"second", c.App, c.API}
	over := c.within(w, c.since(time.Second, c.options.FixedWindows)) >= c.options.Edition.PerSecond
	if !over || c.options.CountRefused {
		c.add(w)
	}
	return over
}

// overMonth counts a metered call in the calendar month of Beijing, and reports whether it is one too
// many.
func (c *call) overMonth() bool {
	if !strings.HasPrefix(c.URL.Path, "/topapi/attendance/") && !strings.HasPrefix(c.URL.Path, "/v1.0/workflow/") {
		return false
	}
	if month := c.At.In(beijing).Format("2006-01"); month != c.month {
		c.month, c.metered = month, 0
	}
	c.metered++
	return c.options.Edition.PerMonth > 0 && c.metered > c.options.Edition.PerMonth
}

// judgeRobot counts every message for a robot in a minute, and closes the robot for ten minutes if they
// are too many. It returns what refuses the message, or nil.
func (c *call) judgeRobot() http.HandlerFunc {
	w := window{rule: "robot", by: c.URL.Query().Get("access_token")}
	count := c.within(w, c.since(time.Minute, false))
	c.add(w)
	open := !c.At.Before(c.closed[w])
	if open && count >= 20 {
		c.closed[w] = c.At.Add(10 * time.Minute)
		open = false
	}
	if open {
		return nil
	}
	return c.refuse("660026", plain(660026, "sending too many messages per minute"))
}
