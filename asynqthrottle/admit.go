package asynqthrottle

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/fleetthrottle/throttle"
)

// keptLonger is for how long after its time the place of a task is kept.
const keptLonger = 24 * time.Hour

// admit returns the permit of a task, or a *Later.
func (g *Gate) admit(ctx context.Context, demands []throttle.Demand) (*throttle.Permit, error) {
	key := g.key(ctx)
	place := g.load(ctx, key)
	waiting := throttle.WithMaxWait(ctx, g.patience)
	for came := place; ; came = place {
		var permit *throttle.Permit
		var err error
		if place == nil {
			permit, place, err = g.limiters.Reserve(waiting, demands...)
		} else {
			permit, place, err = g.limiters.Redeem(waiting, place, demands...)
		}
		switch {
		case errors.As(err, new(*throttle.PlaceError)):
			continue // place is nil: the task gets a new one
		case err != nil:
			return nil, err
		case permit != nil:
			if came != nil {
				_ = g.client.Del(ctx, key).Err() // else it expires
			}
			return permit, nil
		case !isLast(ctx):
			return nil, g.keep(ctx, key, place)
		}
		if err := sleep(ctx, place.RetryAfter()); err != nil {
			return nil, err
		}
	}
}

// isLast reports whether asynq would archive the task if it were put aside: it does that with a task
// that has no retries left, whatever the error. Such a task waits in its worker.
func isLast(ctx context.Context) bool {
	retried, ok := asynq.GetRetryCount(ctx)
	most, known := asynq.GetMaxRetry(ctx)
	return ok && known && retried >= most
}

// key is where the place of a task is kept. asynq tries a task again under the same ID.
func (g *Gate) key(ctx context.Context) string {
	queue, _ := asynq.GetQueueName(ctx)
	id, _ := asynq.GetTaskID(ctx)
	return g.prefix + queue + ":" + id
}

// load returns the place of a task that was put aside; nil if it has none, or none that can be read.
func (g *Gate) load(ctx context.Context, key string) *throttle.Place {
	text, err := g.client.Get(ctx, key).Bytes()
	if err != nil {
		return nil // most are redis.Nil: the task comes for the first time
	}
	place := new(throttle.Place)
	if place.UnmarshalText(text) != nil {
		return nil
	}
	return place
}

// keep keeps the place of a task that is put aside.
func (g *Gate) keep(ctx context.Context, key string, place *throttle.Place) *Later {
	text, err := place.MarshalText()
	if err == nil {
		err = g.client.Set(ctx, key, text, place.RetryAfter()+keptLonger).Err()
	}
	return &Later{place, err}
}

// sleep waits for d.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
