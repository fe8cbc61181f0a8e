package redisstore

import (
	"context"
	"time"
)

// A quiet is the time in which somebody on a bridge has no answer, and what is
// said about it.
type quiet struct {
	trouble
	store *Store
	away  func(error) // as in throttle.Booking; nil: nobody wants to know, or it was told
}

// await waits for a change of place, or for that time. It returns false if ctx ends
// first, or the time is up. Like answered, it tells once why there is no answer yet.
func (q *quiet) await(ctx context.Context, at *place, until time.Time, timeUp <-chan time.Time) bool {
	if at.why != nil && at.why != q.last {
		q.fails, q.last = q.fails+1, at.why
	}
	switch silent := q.since.Add(silence); {
	case q.away == nil, at.ready && at.island == nil: // or Redis answers
	case q.last != nil, !time.Now().Before(silent):
		q.away(q.yet(q.store.where()))
		q.away = nil
	case silent.Before(until):
		until = silent
	}
	return at.await(ctx, until, timeUp)
}
