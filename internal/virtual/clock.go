// Package virtual simulates time, which passes only when all events of a moment are done: a job of
// hours is over in milliseconds, and each run of the job is the same. Package synctest is for
// tests. Package virtual is for programs, and needs no goroutines.
package virtual

import (
	"container/heap"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Clock is virtual time with a queue of events. It is not for use by several goroutines
// at once.
type Clock struct {
	now    int64 // microseconds since the Unix epoch
	last   int64 // the number of the newest timer: see Timer
	events events
	calls  map[<-chan struct{}]func() // by channel, the function that OnClose was given
}

// NewClock returns a clock that stands at t.
func NewClock(t time.Time) *Clock {
	return &Clock{now: t.UnixMicro(), calls: make(map[<-chan struct{}]func())}
}

// Now returns microseconds since the Unix epoch.
func (c *Clock) Now() int64 { return c.now }

// Time is Now as a time.
func (c *Clock) Time() time.Time { return time.UnixMicro(c.now) }

// AfterFunc sets a timer that calls f after d. Timers of one moment fire in the order in which
// they were set.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, do: f, place: -1}
	t.Reset(d)
	return t
}

// OnClose has f called once, as an event of its own, when a channel is closed by [Clock.Close]. If
// the channel is closed already, f is called at the present time. A channel has one function: a
// second OnClose replaces the first.
func (c *Clock) OnClose(ch <-chan struct{}, f func()) {
	select {
	case <-ch:
		c.AfterFunc(0, f)
	default:
		c.calls[ch] = f
	}
}

// Forget undoes OnClose, unless the channel was closed.
func (c *Clock) Forget(ch <-chan struct{}) { delete(c.calls, ch) }

// Close closes a channel, and has the function of OnClose called at the present time.
func (c *Clock) Close(ch chan struct{}) {
	close(ch)
	if f := c.calls[ch]; f != nil {
		delete(c.calls, ch)
		c.AfterFunc(0, f)
	}
}

// Next lets time pass until the next timer is due, and calls its function. It returns false if
// no timer is set.
func (c *Clock) Next() bool {
	if len(c.events) == 0 {
		return false
	}
	t := heap.Pop(&c.events).(*Timer)
	c.now = t.at // not before now: see Reset and Until
	t.do()
	return true
}

// Until lets time pass until a time, in microseconds since the Unix epoch, and calls the functions
// of all timers that are due by then. The clock does not go back if that time is over.
func (c *Clock) Until(at int64) {
	for len(c.events) > 0 && c.events[0].at <= at {
		c.Next()
	}
	c.now = max(c.now, at)
}

// NewStore returns an empty memstore that reads a clock. Package memstore sets NewStore.
var NewStore func(*Clock) store.Store

// A Timer calls a function at a moment of a Clock.
type Timer struct {
	clock  *Clock
	do     func()
	at     int64 // when the timer fires, in microseconds since the Unix epoch
	number int64 // orders timers of one moment: a timer that was set later has a higher number
	place  int   // index in the heap, or -1 if the timer is not set
}

// Reset sets the timer to fire after d, rounded up to microseconds, in place of the time that was
// set. It reports whether the timer was set.
func (t *Timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.clock.last++
	t.number = t.clock.last
	t.at = t.clock.now + int64((max(d, 0)+time.Microsecond-1)/time.Microsecond)
	heap.Push(&t.clock.events, t)
	return was
}

// Stop prevents the timer from firing. It reports whether the timer was set.
func (t *Timer) Stop() bool {
	if t.place < 0 {
		return false
	}
	heap.Remove(&t.clock.events, t.place)
	return true
}

// events are the timers that are set. They implement heap.Interface: the earliest comes first.
type events []*Timer

func (h events) Len() int { return len(h) }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}

func (h events) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *events) Push(x any) {
	t := x.(*Timer)
	t.place = len(*h)
	*h = append(*h, t)
}

func (h *events) Pop() any {
	old := *h
	t := old[len(old)-1]
	t.place = -1
	*h = old[:len(old)-1]
	return t
}
