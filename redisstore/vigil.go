package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A vigil is the watch over one start: see docs/bans.md. Pauses are news that an
// ear hears; where it cannot be sure to hear, the vigil asks.
type vigil struct {
	store  *Store
	b      *throttle.Booking
	group  string
	keys   []string // of the budgets that count
	mark   int64
	due    time.Time     // the start, or a little later
	since  time.Time     // all pauses stored before then are known; guarded by the lock of the vigils
	doubt  time.Duration // by how much due may be too late, and an end that is heard of
	news   chan<- struct{}
	ear    bool        // the start is so far away that it is worth listening
	closed atomic.Bool // a pause closes the start
	lifted atomic.Bool // a pause was lifted: there may be an earlier start
	over   atomic.Bool
}

// earWorth is from how long a wait on a caller is worth a connection that
// listens. For less it asks.
const earWorth = 20 * time.Millisecond

// Watch implements [throttle.Store].
func (s fleetStore) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	asked := born.Add(time.Duration(g.Stamp))
	v := &vigil{
		store: s.Store, b: b, group: b.Charges[0].Budget.Group, news: news,
		mark: g.Mark, since: asked, due: asked.Add(g.Age + g.Wait), doubt: g.Age + clockDoubt,
	}
	for i := range b.Charges {
		switch c := &b.Charges[i]; {
		case c.Shadow:
		case flies(c):
			v.keys = append(v.keys, s.flightKey(&c.Budget))
		default:
			v.keys = append(v.keys, s.key(&c.Budget))
		}
	}
	if v.ear = time.Until(v.due) > s.vigils.worth; v.ear {
		s.prick(v.group)
	}
	s.vigils.add(v)
	return v
}

// Confirm implements [throttle.Watch].
func (v *vigil) Confirm(ctx context.Context) (bool, error) {
	var err error
	if !v.useless() {
		err = v.ask(ctx)
	}
	return err == nil && !v.useless(), err
}

// ask finds out whether the start is closed, if that is not sure.
func (v *vigil) ask(ctx context.Context) error {
	if v.store.ears.covers(v.store.channel(v.group), v.store.vigils.since(v)) {
		return nil
	}
	return v.store.askClosed(ctx, v)
}

func (v *vigil) useless() bool { return v.closed.Load() || v.lifted.Load() }

// Stop implements [throttle.Watch].
func (v *vigil) Stop() {
	if v.over.Swap(true) {
		return
	}
	v.store.vigils.remove(v)
	if v.ear {
		v.store.rest(v.group)
	}
}

// A closing is the end of a pause, 0 for one that was lifted, and how long it is
// until then.
type closing struct {
	end  int64 // by the server's clock
	left time.Duration
}

// clockDoubt is from how much on the two of a closing disagree about a start
// because the server's clock was set back after it was booked, and not because
// they were on their way.
const clockDoubt = 250 * time.Millisecond

// hear notes what a vigil's budget is like.
func (v *vigil) hear(c closing) {
	if c.end > v.mark || c.left > max(0, time.Until(v.due)+v.doubt) {
		v.closed.Store(true)
	}
}

// tell wakes the caller.
func (v *vigil) tell() {
	select {
	case v.news <- struct{}{}:
	default: // it is told already
	}
}
