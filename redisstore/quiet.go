package redisstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// A quiet is the time in which somebody on a bridge has no answer, and what is
// said about it.
type quiet struct {
	conn.Unavailability
	store    *Store
	observer func(error) // of the outage; nil: there is none, or it was told
}

// await waits for a change of place, or for that time. It returns false if ctx ends
// first, or the time is up. Like answered, it tells once why there is no answer yet.
func (q *quiet) await(ctx context.Context, at *place, until time.Time, timeUp <-chan time.Time) bool {
	if at.why != nil && at.why != q.Last {
		q.Add(at.why)
	}
	switch silent := q.Since.Add(conn.Silence); {
	case q.observer == nil, at.ready && at.island == nil: // or Redis answers
	case q.Last != nil, !time.Now().Before(silent):
		q.observer(q.store.conn.Cause(q.Unavailability))
		q.observer = nil
	case silent.Before(until):
		until = silent
	}
	return at.await(ctx, until, timeUp)
}
