package history

import (
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// RecordTime is for how long Redis surely remembers a call: see docs/internals/once.md.
const RecordTime = wire.RecordTime - 5*time.Second

// suspendThreshold is by how much the two clocks of a computer may differ about how
// long ago something was. The monotonic one stands still while a computer is suspended.
const suspendThreshold = time.Second

// A Reply is the last call whose reply spoke of a budget. Times of the server are
// microseconds of its clock.
type Reply struct {
	Group      string    // that the call was for
	Number     int64     // of the call
	Sent       time.Time // when the call was sent
	ServerTime int64     // that the reply told, or 0 before the first reply
	By         time.Time // when it was that time, at the latest; the zero time in a repeated reply
}

// withTime returns a reply that was given again and received at a time, with its By. The difference of their
// server times says how much later than the last reply it was decided. Without a last reply it counts as decided
// when the copy of the call was sent that was done. If that copy was held up, the clock will seem to have been set back
// since, which is the safe mistake.
func (r Reply) withTime(last Reply, received time.Time) Reply {
	r.By = r.Sent
	if !last.By.IsZero() {
		r.By = last.By.Add(Between(last.ServerTime, r.ServerTime))
	}

	// The copy cannot have been decided after its reply was received.
	if r.By.After(received) {
		r.By = received
	}
	return r
}

// record returns the number that the record of the group's last call cannot be below;
// 0 if there may be none.
func (r Reply) record(group string, now time.Time) int64 {
	if r.Group != group || now.Sub(r.Sent) > RecordTime {
		return 0
	}
	return r.Number
}

// clockSample returns the lengths of time by which a script finds out that its server's clock was set. A script that
// suspects that its clock was set forward may have been called late, so it tells its time and asks back. Then
// the clocks can be compared: either the suspicion is true, or nobody can tell.
func (r Reply) clockSample(now time.Time, serverTime int64) wire.Known {
	s := wire.Known{ServerTime: r.ServerTime}
	s.Elapsed, s.Clock = Elapsed(r.Sent, now)
	if !r.By.IsZero() {
		s.AtLeast = max(0, now.Sub(r.By))
	}

	// The script has told its time and asks back, so there is an answer: the clock was set, or nobody can tell.
	if serverTime != 0 && s.Clock == wire.ElapsedKnown {
		passed := micros(s.Elapsed)
		s.Clock = wire.ElapsedUnknown
		if serverTime-r.ServerTime > passed+micros(wire.Stall)+passed/wire.Steady {
			s.Clock = wire.SetForward
		}
	}

	return s
}

// Elapsed is how long ago something was. Nobody can tell if it never was, or if the
// computer was suspended meanwhile.
func Elapsed(then, now time.Time) (time.Duration, wire.Clock) {
	if then.IsZero() {
		return 0, wire.ElapsedUnknown
	}
	d := now.Sub(then)

	// The wall clock goes on while a computer is suspended, and the monotonic clock does not.
	if (now.Round(0).Sub(then.Round(0)) - d).Abs() > suspendThreshold {
		return 0, wire.ElapsedUnknown
	}
	return d, wire.ElapsedKnown
}

// DecidedAt says to which time of the server a reply belongs that was decided by an
// earlier copy of its call, sent then: at was not before since, and not after the reply
// was received. That is the time now, as the server tells it, unless its clock was set
// meanwhile: less has passed than nothing, or more than since the copy was sent. Then
// nobody knows how long ago it was decided. If the clock was set back by less than that,
// since is as much earlier, and a caller that waits for a start may find that it is too
// old.
func DecidedAt(sent, received time.Time, decided, now int64) (at int64, since time.Time) {
	passed := now - decided
	elapsed, clock := Elapsed(sent, received)

	// The time since the copy was sent is an upper bound on the time since the server decided.
	most, known := micros(elapsed), clock == wire.ElapsedKnown
	switch {
	case passed < 0 || known && passed > most+most/wire.Steady:
		return decided, sent
	case !known:
		return now, sent
	}
	return now, sent.Add(time.Duration(passed) * time.Microsecond)
}

// Between is the length of time between two times of a server, at most [store.MaxAhead]. It is below 0 if the second
// time is earlier.
func Between(from, to int64) time.Duration {
	most := micros(store.MaxAhead)
	return time.Duration(min(max(-most, to-from), most)) * time.Microsecond
}

// micros rounds up: it is safe to believe that more time has passed.
func micros(d time.Duration) int64 {
	m := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		m++
	}
	return m
}

// ClockOffsets are how far the servers' clocks are ahead of the node's, by group: the
// budgets of one group are on one server.
type ClockOffsets struct {
	mu  sync.Mutex
	all map[string]*offset
}

// An offset lies between two bounds. A reply that tells the server's time was decided
// after it was asked for and before it was received, so each reply is a pair of bounds,
// and the fastest reply that was ever received has the best. Where between its bounds the offset lies is not
// known, and may differ from node to node.
type offset struct {
	least, most time.Duration
	seen        time.Time
	replies     int // that agree
}

const (
	mostOffsets   = 1 << 12
	enoughReplies = 3
	drift         = 2000 // two clocks drift apart by at most one part in drift
)

// origin is the time from which the node's times count.
var origin = time.Now()

// NewClockOffsets returns ClockOffsets that know nothing.
func NewClockOffsets() *ClockOffsets { return &ClockOffsets{all: make(map[string]*offset)} }

// Observe learns from a reply that told the server's time.
func (c *ClockOffsets) Observe(group string, serverTime int64, sent, received time.Time) {
	at := time.Duration(serverTime) * time.Microsecond
	least, most := at-received.Sub(origin), at+time.Microsecond-sent.Sub(origin)
	c.mu.Lock()
	defer c.mu.Unlock()

	o := c.all[group]
	if o == nil {
		// The bound keeps memory small. To forget all costs a few replies until offsets are known again.
		if len(c.all) >= mostOffsets {
			clear(c.all)
		}
		c.all[group] = &offset{least, most, received, 1}
		return
	}

	// Clocks drift apart, so the old bounds are worth less with time; the new reply has bounds of its own.
	doubt := received.Sub(o.seen) / drift
	o.least, o.most, o.seen = max(o.least-doubt, least), min(o.most+doubt, most), received
	if o.least > o.most {
		o.least, o.most, o.replies = least, most, 0 // a clock was set, or a failover led to a new server
	}

	o.replies++
}

// Until returns how long it is until a time of the group's server has surely come, and how
// much earlier it may have come. It is not known before some replies agree.
func (c *ClockOffsets) Until(group string, serverTime int64, now time.Time) (wait, doubt time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[group]
	if o == nil || o.replies < enoughReplies {
		return 0, 0, false
	}
	return time.Duration(serverTime)*time.Microsecond - o.least - now.Sub(origin), o.most - o.least, true
}
