package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/store"
)

// Book implements [store.Store]. Callers wait from when the primary seems to be away until it is
// given up, and then until the share can be used or, if the share never has room for them, until
// the primary is back. They also wait while suspected nodes may use the room that they need in the
// primary. A primary that is unfit is an error at once. A caller whose time, see [conn.Patience],
// or ctx ends meanwhile gets an error with NotHeld.
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	// The group counts as used as long as the caller waits, so its heartbeats go on.
	g := s.enter(b.Charges[0].Budget.Group)
	defer g.leave()
	own, notice := *b, newOutageNotice(ctx, s.Conn)
	timeUp, stop := conn.Timeout(context.Background(), b.MaxWait, notice.Since) // await looks at ctx itself
	defer stop()

	for {
		// Where callers book may change while this caller waits, so each round asks again.
		r := g.route()
		var opens time.Time

		// In the primary the booking leaves free what suspected nodes may use. If a limit has no room for the cost beside that, the caller waits.
		hasRoom := false
		if r.local == nil && r.ready {
			hasRoom = leaveRoom(&own, b, r.suspected)
		}

		switch {
		// A primary that is unfit is not away, and no wait helps.
		case r.local == nil && errors.Is(r.lastErr, conn.ErrUnfit):
			return store.Grant{HeldBy: store.NotHeld}, r.lastErr

		// The primary was given up. The share has no lines, and a place in the primary's line is of no use there.
		case r.local != nil:
			s.leaveLine(&own)
			own.Charges = b.Charges
			decided := time.Now()

			// Without an Age the caller would take a start with Wait 0 to be as old as its call of Book, which may be long ago. So tell it that the
			// start is as old as this decision, 1 ns at the least.
			grant, opensAt, answered := r.local.book(&own)
			if answered {
				grant.Age = max(1, time.Since(decided))
				return grant, nil
			}

			opens = opensAt

		case hasRoom:
			grant, err := s.bookPrimary(ctx, r.up, &own)

			// The caller waits on only if the call failed because the primary was given up.
			if err == nil || r.up.Err() == nil || ctx.Err() != nil {
				return grant, err
			}

		// Suspected nodes may use the room, and the caller may not wait for them.
		case r.ready && b.MaxWait == 0 && r.up.Err() == nil:
			return store.Grant{HeldBy: store.NotHeld}, errSuspected
		}

		// The caller waits on, and the time that it has waited counts.
		own.MaxWait = conn.Remaining(b.MaxWait, notice.Since)
		own.NotBefore = max(0, b.NotBefore-time.Since(notice.Since))

		// If the primary was given up meanwhile, book in the share at once: there is nothing to wait for, and nothing to tell the observer.
		if r.local == nil && r.up.Err() != nil {
			continue
		}
		if !notice.await(ctx, &r, opens, timeUp) {
			return store.Grant{HeldBy: store.NotHeld}, notice.end(ctx, &r)
		}
	}
}

// bookPrimary books in the primary. It returns an error if the primary is given up meanwhile: up
// ends then. After an error b has nothing any more that could be given back twice.
func (s *Store) bookPrimary(ctx, up context.Context, b *store.Booking) (store.Grant, error) {
	ctx, stop := whileUp(ctx, up)
	defer stop()
	if b.Instead.Local {
		b.Instead = store.Handle{} // a start in a share that has ended
	}
	g, err := s.primary.Book(ctx, b)
	if err != nil {
		// After an error Instead counts as given back, see store.Booking. The Turn belongs to the
		// call, which may go on.
		b.Instead, b.Turn, b.Returns = store.Handle{}, nil, b.Returns || b.Turn != nil
	}
	return g, err
}

// leaveLine gives back a caller's places in the primary's lines, if it has any. The caller keeps its
// Turn.
func (s *Store) leaveLine(b *store.Booking) {
	// A caller that waits in no line of the primary has nothing to give back there.
	if place := b.Instead.Place; place != 0 || b.Turn != nil {
		s.primary.Cancel(b, store.Grant{Handle: store.Handle{Place: place}, Turn: b.Turn, HeldBy: store.NotHeld})
		if place != 0 {
			b.Instead = store.Handle{}
		}
	}
}

// whileUp returns a context that ends with ctx, or with errAway when up ends, because the primary
// is given up. The function that it returns must be called once. It ends the context.
func whileUp(ctx, up context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})

	// If this function has begun, the returned one waits for it: nothing uses the context afterwards.
	stop := context.AfterFunc(up, func() {
		defer close(done)
		cancel(errAway)
	})
	return ctx, func() {
		if !stop() {
			<-done
		}
		cancel(nil)
	}
}

// leaveRoom sets the charges of own, a copy of b: those of b, with a KeepFree that also leaves free what
// suspected nodes may use. suspected are the divisors of their shares. It returns false if a charge never
// has room beside that: then own must not be booked.
func leaveRoom(own, b *store.Booking, suspected []int) bool {
	own.Charges = b.Charges
	if len(suspected) == 0 {
		return true
	}

	// Charges belong to the caller, so a change needs a copy.
	own.Charges = slices.Clone(b.Charges)
	for i := range own.Charges {
		c := &own.Charges[i]
		if !isShared(c) {
			continue
		}

		for _, d := range suspected {
			c.KeepFree += share(c.Limit.Capacity(), d)
		}

		// With what suspected nodes may use, the limit has no room for the cost.
		if !c.Shadow && c.Cost > c.Limit.Capacity()-c.KeepFree {
			return false
		}
	}

	return true
}

// A route says where a group's callers book now: in local if that is not nil; in the primary if ready; and
// otherwise they wait.
type route struct {
	local     *localShare     // this node's share, or nil while the primary is not given up
	ready     bool            // the node knows which nodes are suspected, or FailOpen is set
	up        context.Context // ends when the primary is given up
	suspected []int           // the divisors of the shares that suspected nodes may be using
	fails     int             // how many heartbeats in a row were not answered
	lastErr   error           // why the last of them was not answered, if that is known
	changed   <-chan struct{} // closed when the route may have changed
}

// route returns where the callers of the group book now.
func (g *group) route() route {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()

	// FailOpen needs no heartbeats: nobody leaves room for anybody.
	r := route{local: g.local, up: g.up, changed: g.routeChanged, ready: g.store.FailOpen, fails: g.beats.fails, lastErr: g.beats.lastErr}
	if !r.ready && g.beats.recent(time.Now()) {
		r.ready, r.suspected = true, g.beats.last.Suspected
	}
	return r
}

// An outageNotice tells a caller's observer, once, why the caller waits.
type outageNotice struct {
	conn.Unavailability
	conn *conn.Conn
	tell outage.Observer // the observer, or nil if there is none or it was told already
}

// newOutageNotice returns the notice of a caller that begins to wait now, for the observer of its context.
func newOutageNotice(ctx context.Context, c *conn.Conn) *outageNotice {
	return &outageNotice{Unavailability: conn.Unavailability{Since: time.Now()}, conn: c, tell: outage.From(ctx)}
}

// await waits until the route r may have changed or, unless until is zero, until then. It tells the
// observer of the outage, once, and may return early so that the next call tells it. It returns false
// if ctx ends or timeUp is ready first.
func (n *outageNotice) await(ctx context.Context, r *route, until time.Time, timeUp <-chan time.Time) bool {
	// The last heartbeats say why the caller waits.
	n.Fails, n.Last = 0, r.lastErr
	if n.Last != nil {
		n.Fails = r.fails
	}

	// Tell the observer if the last heartbeat has failed, or if the caller has waited for conn.Silence. Otherwise return by then. A caller that only
	// waits because suspected nodes may use the room is not told: the primary is there.
	if n.tell != nil && (r.local != nil || !r.ready) {
		switch tellAt := n.Since.Add(conn.Silence); {
		case n.Last != nil, !time.Now().Before(tellAt):
			n.tell.StoreAway(n.conn.Cause(n.Unavailability))
			n.tell = nil
		case until.IsZero() || tellAt.Before(until):
			until = tellAt
		}
	}

	// Without a time to wait for, timer stays nil and never fires.
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}

	select {
	case <-r.changed:
	case <-timer:
	case <-timeUp:
		return false
	case <-ctx.Done():
		return false
	}

	return true
}

// errSuspected is the error of a caller for which a limit has no room beside what suspected nodes may use.
var errSuspected = errors.New("redisstore: the rest of the limit may be in use by programs that Redis has not heard from for seconds")

// end returns the error of a caller that waits no longer on the route r, because ctx has ended or its own time is up.
func (n *outageNotice) end(ctx context.Context, r *route) error {
	// The primary is there, so the caller has waited for room.
	if r.local == nil && r.ready && r.up.Err() == nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("%w (%w)", errSuspected, cause)
		}
		return errSuspected
	}
	return n.conn.Unavailable(n.Unavailability, context.Cause(ctx))
}
