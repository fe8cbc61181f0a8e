// Package virtual is time that passes only when all events of a moment are done: a job of
// hours is over in milliseconds, and each run of it is the same. Package synctest is for
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
	last   int64 // the number of the newest event
	events events
	calls  map[<-chan struct{}]func()
}

// NewClock returns a clock that stands at t.
func NewClock(t time.Time) *Clock {
	return &Clock{now: t.UnixMicro(), calls: make(map[<-chan struct{}]func())}
}

// Now returns microseconds since the Unix epoch.
func (c *Clock) Now() int64 { return c.now }

// Time returns the time.
func (c *Clock) Time() time.Time { return time.UnixMicro(c.now) }

// AfterFunc calls f in d. What is to happen at one moment happens in the order in which it was
// asked for.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{clock: c, do: f, place: -1}
	t.Reset(d)
	return t
}

// OnClose calls f, once, as an event of its own, when a channel is closed by [Clock.Close], or
// was closed already.
func (c *Clock) OnClose(ch <-chan struct{}, f func()) {
	select {
	case <-ch:
		c.AfterFunc(0, f)
	default:
		c.calls[ch] = f
	}
}

// Forget takes back OnClose.
func (c *Clock) Forget(ch <-chan struct{}) { delete(c.calls, ch) }

// Close closes a channel.
func (c *Clock) Close(ch chan struct{}) {
	close(ch)
	if f := c.calls[ch]; f != nil {
		delete(c.calls, ch)
		c.AfterFunc(0, f)
	}
}

// Next lets time pass until the next event, and has it happen. It returns false if there is
// none.
func (c *Clock) Next() bool {
	if len(c.events) == 0 {
		return false
	}
	t := heap.Pop(&c.events).(*Timer)
	c.now = max(c.now, t.at)
	t.do()
	return true
}

// Until lets time pass until a time, in microseconds since the Unix epoch, and has happen what
// happens until then.
func (c *Clock) Until(at int64) {
	for len(c.events) > 0 && c.events[0].at <= at {
		c.Next()
	}
	c.now = max(c.now, at)
}

// NewStore returns an empty memstore that reads a clock. Package memstore sets NewStore.
var NewStore func(*Clock) store.Store

// A Timer is one event to come.
type Timer struct {
	clock  *Clock
	do     func()
	at     int64
	number int64
	place  int // in the heap, or -1 outside of it
}

// Reset has it happen in d, and not when it was to. It reports whether it was to happen.
func (t *Timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.clock.last++
	t.number = t.clock.last
	t.at = t.clock.now + int64((max(d, 0)+time.Microsecond-1)/time.Microsecond)
	heap.Push(&t.clock.events, t)
	return was
}

// Stop has it not happen. It reports whether it was to.
func (t *Timer) Stop() bool {
	if t.place < 0 {
		return false
	}
	heap.Remove(&t.clock.events, t.place)
	return true
}

// events implements heap.Interface, the earliest first.
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
