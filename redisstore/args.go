package redisstore

import (
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
)

// kindNames are the kinds as the scripts know them.
var kindNames = map[throttle.Kind]string{
	throttle.Sliding: "sliding",
	throttle.Aligned: "aligned",
	throttle.Paced:   "paced",
}

// edges says for which time a script needs the edges of calendar windows: the
// scripts know no time zones. Both are microseconds of the server's clock.
type edges struct{ now, until int64 }

// edgesAhead is how many windows beyond the needed ones are sent along, so that
// a queue of a few windows costs no second call.
const edgesAhead = 3

// of returns the edges of the limit's windows: its length in microseconds for a
// fixed window; for a calendar the edges themselves, in seconds, from the window
// before now's (the guess may be a little off) to some after until.
func (e edges) of(l throttle.Limit) string {
	if l.Kind() != throttle.Aligned {
		return ""
	}
	if l.Per() > 0 {
		return strconv.FormatInt(micros(l.Per()), 10)
	}
	start, _ := l.Window(time.UnixMicro(e.now))
	start, end := l.Window(start.Add(-1))
	list := strconv.AppendInt(nil, start.Unix(), 10)
	for past := 0; past <= edgesAhead; {
		list = append(list, ' ')
		list = strconv.AppendInt(list, end.Unix(), 10)
		if end.UnixMicro() > e.until {
			past++
		}
		_, end = l.Window(end)
	}
	return string(list)
}

// micros rounds up: every promise that a store keeps is about more room.
func micros(d time.Duration) int64 {
	m := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		m++
	}
	return m
}

// waitOf is a wait as the scripts answer it.
func waitOf(micro int64) time.Duration {
	if micro > micros(throttle.Farthest) {
		return throttle.Never
	}
	return time.Duration(micro) * time.Microsecond
}

// waitArg is the longest wait as the scripts read it; negative means any.
func waitArg(d time.Duration) int64 {
	if d < 0 {
		return anyWait
	}
	return int64(d / time.Microsecond)
}
