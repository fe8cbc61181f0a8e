package fallback

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// A route says where a group's callers book now: in local if that is not nil, else in the primary if
// ready, else nowhere.
type route struct {
	local     *localShare     // this node's share; nil: the primary is not given up
	ready     bool            // it is known which nodes are suspected, or FailOpen is set
	up        context.Context // ends when the primary is given up
	suspected []int           // the divisors of the shares that suspected nodes may be using
	fails     int             // how many heartbeats in a row were not answered,
	lastErr   error           // and why
	changed   <-chan struct{} // closed when there may be another way
}

func (g *group) route() route {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	r := route{local: g.local, up: g.up, changed: g.routeChanged, ready: g.store.FailOpen, fails: g.beats.fails, lastErr: g.beats.lastErr}
	if !r.ready && g.beats.recent(time.Now()) {
		r.ready, r.suspected = true, g.beats.last.Suspected
	}
	return r
}

// An outageNotice tells a caller, once, why it waits.
type outageNotice struct {
	conn.Unavailability
	conn *conn.Conn
	tell outage.Observer // the observer of the outage; nil: there is none, or it was told
}

func newOutageNotice(ctx context.Context, c *conn.Conn) *outageNotice {
	return &outageNotice{Unavailability: conn.Unavailability{Since: time.Now()}, conn: c, tell: outage.From(ctx)}
}

// await waits until there may be another way, or for that time unless it is zero. It
// returns false if ctx ends first, or the time is up.
func (n *outageNotice) await(ctx context.Context, r *route, until time.Time, timeUp <-chan time.Time) bool {
	if n.Fails, n.Last = 0, r.lastErr; n.Last != nil {
		n.Fails = r.fails
	}
	if n.tell != nil && (r.local != nil || !r.ready) {
		switch told := n.Since.Add(conn.Silence); {
		case n.Last != nil, !time.Now().Before(told):
			n.tell.StoreAway(n.conn.Cause(n.Unavailability))
			n.tell = nil
		case until.IsZero() || told.Before(until):
			until = told
		}
	}
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

// end is the error of a caller that waits no longer.
func (n *outageNotice) end(ctx context.Context) error {
	return n.conn.Unavailable(n.Unavailability, context.Cause(ctx))
}
