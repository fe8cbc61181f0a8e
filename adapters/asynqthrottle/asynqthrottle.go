// Package asynqthrottle keeps the tasks of [asynq] within the limits of an external API. A waiting
// task occupies no worker.
//
// A task that would have to wait is put aside: asynq runs it again when its turn comes. That counts
// neither as a failure nor as a retry. Meanwhile the task keeps its place in line, before all later
// tasks, and before later callers that wait in memory.
package asynqthrottle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// A Gate lets tasks through when there is room for them. It is safe for concurrent use.
type Gate struct {
	limiters *throttle.Limiters
	client   redis.UniversalClient
	demands  func(*asynq.Task) []throttle.Demand
	patience time.Duration
	prefix   string
}

// Options configure a Gate. Only Demands is required.
type Options struct {
	// Demands returns the budgets that a task takes from, and the costs. A task without demands is
	// let through.
	Demands func(*asynq.Task) []throttle.Demand

	// Patience is how long a task may wait in its worker before it is put aside. It should exceed
	// the server's DelayedTaskCheckInterval, the interval at which asynq looks for delayed tasks.
	// Defaults to [DefaultPatience].
	Patience time.Duration

	// Prefix is the prefix of the Redis keys that hold the places of tasks. Defaults to
	// [DefaultPrefix].
	Prefix string
}

// The defaults of [Options], and the DelayedTaskCheckInterval that [Gate.Config] sets.
const (
	DefaultPatience = 3 * time.Second
	DefaultPrefix   = "asynqthrottle:"
	checkInterval   = time.Second
)

// New returns a gate to the budgets of limiters, whose store must keep places: memstore or
// redisstore. asynq stores nothing with a task after the task was enqueued, so the gate keeps each
// place in the Redis of client, until a day after the task's turn. The error has all mistakes.
func New(l *throttle.Limiters, client redis.UniversalClient, o Options) (*Gate, error) {
	var mistakes []error
	if o.Demands == nil {
		mistakes = append(mistakes, errors.New("asynqthrottle: set Options.Demands: it says which budgets a task needs"))
	}

	if l == nil {
		mistakes = append(mistakes, errors.New("asynqthrottle: the limiters are missing"))
	} else {
		mistakes = append(mistakes, l.CheckPlaces())
	}

	if client == nil {
		mistakes = append(mistakes, errors.New("asynqthrottle: the client is missing: its Redis keeps the places of tasks"))
	}
	if o.Patience < 0 {
		mistakes = append(mistakes, fmt.Errorf("asynqthrottle: Options.Patience is %v: use more than 0, or 0 for %v", o.Patience, DefaultPatience))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}

	g := &Gate{limiters: l, client: client, demands: o.Demands, patience: o.Patience, prefix: o.Prefix}
	if g.patience == 0 {
		g.patience = DefaultPatience
	}
	if g.prefix == "" {
		g.prefix = DefaultPrefix
	}

	return g, nil
}

// A Later is the error of a task that is put aside.
type Later struct {
	Place *throttle.Place
	Lost  error // why a place of the task could not be read or kept, so that the task gets a new place. It is nil if no place was lost.
}

// Error implements error.
func (e *Later) Error() string {
	text := fmt.Sprintf("asynqthrottle: put aside for %v, because a limit is full", e.Place.RetryAfter().Round(time.Millisecond))
	if e.Lost != nil {
		text += fmt.Sprintf("; its place was lost: %v", e.Lost)
	}
	return text
}

// Unwrap returns [throttle.ErrLimited] and what became of the place.
func (e *Later) Unwrap() []error {
	if e.Lost == nil {
		return []error{throttle.ErrLimited}
	}
	return []error{throttle.ErrLimited, e.Lost}
}

// Config returns the configuration of a server that a gate needs: tasks that were put aside run
// again when their turn comes, without counting as failures, and asynq looks for them every second,
// unless c sets an interval.
func (g *Gate) Config(c asynq.Config) asynq.Config {
	delay, failure := c.RetryDelayFunc, c.IsFailure
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}

	c.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if later := new(*Later); errors.As(err, later) {
			return (*later).Place.RetryAfter()
		}
		return delay(n, err, t)
	}

	// asynq counts only failures towards the maximum of retries. Without an IsFailure every error is one.
	c.IsFailure = func(err error) bool {
		if errors.As(err, new(*Later)) {
			return false
		}
		return failure == nil || failure(err)
	}

	// By default asynq looks for delayed tasks every five seconds, which would let their turns pass.
	if c.DelayedTaskCheckInterval == 0 {
		c.DelayedTaskCheckInterval = checkInterval
	}

	return c
}

// Middleware returns a handler that calls next for tasks that may start, and for tasks without demands: see [asynq.ServeMux.Use].
// For a task that is put aside the handler returns a *[Later], and otherwise an error of [throttle.Limiters.Reserve]. next finds the
// permit of the task by [Permit], and the permit ends when next returns. The server's configuration must be from [Gate.Config].
func (g *Gate) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		demands := g.demands(t)
		if len(demands) == 0 {
			return next.ProcessTask(ctx, t)
		}
		permit, err := g.admit(ctx, demands)
		if err != nil {
			return err
		}
		defer permit.Release()
		return next.ProcessTask(context.WithValue(ctx, permitKey{}, permit), t)
	})
}

type permitKey struct{}

// Permit returns the permit of the task in ctx, to settle its cost or to close a budget that
// refused it, or nil if ctx has no permit.
func Permit(ctx context.Context) *throttle.Permit {
	p, _ := ctx.Value(permitKey{}).(*throttle.Permit)
	return p
}

// keptLonger is for how long after its time the place of a task is kept.
const keptLonger = 24 * time.Hour

// admit returns the permit of a task. Its error is a *Later if the task is put aside. The last attempt
// of a task is never put aside: it waits for its turn. Other errors are from
// [throttle.Limiters.Reserve] or from ctx.
func (g *Gate) admit(ctx context.Context, demands []throttle.Demand) (*throttle.Permit, error) {
	// A task whose place cannot be read gets a new one.
	key := g.key(ctx)
	place, lost := g.load(ctx, key)

	// Wait up to patience here. Reserve answers a longer wait with a place.
	waiting := throttle.WithMaxWait(ctx, g.patience)
	for {
		hadPlace := place != nil
		var permit *throttle.Permit
		var err error
		permit, place, err = g.limiters.Reserve(waiting, place, demands...)
		switch {
		case errors.As(err, new(*store.PlaceError)):
			continue // place is nil now, so the next round gets a new one: in Redis it replaces the void place, which else expires
		case err != nil:
			return nil, err
		case permit != nil:
			// The place is used up. If Del fails, its key expires.
			if hadPlace {
				_ = g.client.Del(ctx, key).Err()
			}
			return permit, nil

		case !isLast(ctx):
			return nil, g.keep(ctx, key, place, lost)
		}

		// asynq would archive the last attempt, so the attempt waits in its worker.
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

// key is the Redis key under which the place of a task is kept. asynq tries a task again under the same ID.
func (g *Gate) key(ctx context.Context) string {
	queue, _ := asynq.GetQueueName(ctx)
	id, _ := asynq.GetTaskID(ctx)
	return g.prefix + queue + ":" + id
}

// load returns the place of a task that was put aside. The place is nil if the task has none. If the place cannot
// be read, load returns nil and an error.
func (g *Gate) load(ctx context.Context, key string) (*throttle.Place, error) {
	text, err := g.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	place := new(throttle.Place)
	if err := place.UnmarshalText(text); err != nil {
		return nil, err
	}
	return place, nil
}

// keep keeps the place of a task, and returns the error that puts the task aside. lost is why an earlier place of the task could not be read, or
// nil.
func (g *Gate) keep(ctx context.Context, key string, place *throttle.Place, lost error) *Later {
	text, err := place.MarshalText()
	if err == nil {
		err = g.client.Set(ctx, key, text, place.RetryAfter()+keptLonger).Err()
	}
	return &Later{place, errors.Join(lost, err)}
}

// sleep waits for d. If ctx ends first, it returns why.
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
