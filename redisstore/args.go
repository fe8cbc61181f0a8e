package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// edges says for which time a script needs the edges of calendar windows: the
// scripts know no time zones. Both are microseconds of the server's clock.
type edges struct {
	now, until int64
	told       bool // the server has just told now: else it is a guess

	shut []string // the keys of gates that are shut, if that was answered: see gates.go
}

// due is the time at which a call that is written now should be there, by the server's
// clock; 0 if nobody knows that clock, or the server has told it just because a call
// was late.
func (e edges) due(s *Store) int64 {
	if e.told || !s.clocked.Load() {
		return 0
	}
	return e.now
}

// heard is the server's time if it has just told it, else 0.
func (e edges) heard() int64 {
	if !e.told {
		return 0
	}
	return e.now
}

// edgesAhead is how many windows beyond the needed ones are sent along, so that
// a queue of a few windows costs no second call.
const edgesAhead = 3

// appendRule appends what the scripts need to know of a charge under a key but
// its cost: see lua/rule.lua.
func (e edges) appendRule(n numbers, key int, c *throttle.Charge) numbers {
	tokens, flow := int64(0), int64(0)
	if c.Limit.Kind() == throttle.KindTokenBucket {
		tokens, flow = c.Refill()
	}
	n = n.add(int64(key), int64(c.Limit.Kind()), int64(c.Limit.Capacity()),
		micros(c.Span()), micros(c.Jitter), micros(c.Pace), tokens, flow, micros(c.LearnsPer()))
	count := len(n)
	n = n.add(0)
	n = e.appendEdges(n, c.Limit)
	copy(n[count:], numbers(nil).add(int64(n.from(count/8+1).size())))
	return n
}

// appendEdges appends the edges of the limit's windows: the length of a fixed
// one; for a calendar the edges themselves, from the window before now's (the
// guess may be a little off) to some after until.
func (e edges) appendEdges(n numbers, l throttle.Limit) numbers {
	if l.Kind() != throttle.KindFixedWindow {
		return n
	}
	if l.Per() > 0 {
		return n.add(micros(l.Per()))
	}
	start, _ := l.Window(time.UnixMicro(e.now))
	start, end := l.Window(start.Add(-1))
	n = n.add(start.UnixMicro())
	for past := 0; past <= edgesAhead; {
		n = n.add(end.UnixMicro())
		if end.UnixMicro() > e.until {
			past++
		}
		_, end = l.Window(end)
	}
	return n
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
	return time.Duration(max(0, micro)) * time.Microsecond
}

// waitArg is the longest wait as the scripts read it; negative means any.
func waitArg(d time.Duration) int64 {
	if d < 0 {
		return anyWait
	}
	return int64(d / time.Microsecond)
}
