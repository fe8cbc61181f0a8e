// Package temporalthrottle keeps the activities of [Temporal] within the limits of an external API.
// A waiting activity occupies no worker.
//
// An activity that would have to wait ends with an error that asks Temporal for a further attempt
// when its turn comes. Meanwhile it keeps its place in line, before all later activities, and
// before later callers that wait in memory. The place is in the heartbeat details of the activity.
//
// # Attempts
//
// To be put aside counts as an attempt: leave MaximumAttempts of the activity's retry policy at 0, which is without
// bound. Temporal says which attempt is the last: that one waits in its worker. The error has the category
// benign, so the worker counts no failure in its metrics and logs the error at the level debug.
//
// The time between attempts counts for ScheduleToCloseTimeout, and not for StartToCloseTimeout or HeartbeatTimeout. Let the
// two be longer than an activity waits in its worker: 2 seconds, or what [throttle.WithMaxWait] of the context says.
//
// Temporal before 1.24.2 does not know the delay that the error asks for, and tries again as the retry policy says. That is
// too early or too late, and within the limit.
//
// # Heartbeat details
//
// An activity may have heartbeat details of its own. Its last details stay in front of the place,
// so [activity.GetHeartbeatDetails] still finds them: see [HasHeartbeatDetails].
//
// # What is tested
//
// The tests run activities in the SDK's test environment, and in a worker of the SDK before a stand-in for the
// server that hands out activities. They do not run a Temporal server.
//
// [Temporal]: https://temporal.io
package temporalthrottle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// ErrorType is the type of the [temporal.ApplicationError] of an activity that is put aside.
const ErrorType = "throttle:later"

// A Gate lets activities through when there is room for them. It is safe for concurrent use.
type Gate struct{ limiters *throttle.Limiters }

// New returns a gate to the budgets of limiters, whose store must keep places: memstore or
// redisstore. With any other store the error is the *[throttle.ConfigError] of
// [throttle.Limiters.CheckPlaces]. Nil limiters are an error, too.
func New(l *throttle.Limiters) (*Gate, error) {
	if l == nil {
		return nil, errors.New("temporalthrottle: the limiters are missing")
	}
	if err := l.CheckPlaces(); err != nil {
		return nil, err
	}
	return &Gate{l}, nil
}

// Acquire returns the permit of an activity. Call it once, before the work, and release the permit
// when the work is done.
//
// If the activity would have to wait, the error is a [*temporal.ApplicationError] of the type
// [ErrorType]. Return it unwrapped: Temporal does not see the delay of a wrapped error. All other
// errors are errors of [throttle.Limiters.Reserve].
//
// The last attempt that the retry policy allows waits in its worker, because Temporal would end the
// activity. A local activity waits in its worker, too: it has no heartbeat details that could keep
// a place.
func (g *Gate) Acquire(ctx context.Context, demands ...throttle.Demand) (*throttle.Permit, error) {
	if !activity.IsActivity(ctx) {
		return nil, errors.New("temporalthrottle: Acquire needs the context of an activity")
	}

	d := detailsOf(ctx)
	for place := d.place; ; {
		permit, later, err := g.visit(ctx, place, demands)
		switch {
		case err != nil:
			return nil, err
		case permit != nil:
			return begin(ctx, d, permit)
		case !isLast(ctx):
			return nil, putAside(ctx, d, later)
		}

		// The last attempt waits here, and tries again with its new place.
		if err := stay(ctx, d, later.RetryAfter()); err != nil {
			return nil, err
		}

		place = later
	}
}

// visit returns a permit or, if the activity would have to wait, a new place. It reserves with place, which may be nil. If place cannot be
// redeemed, visit reserves without it.
func (g *Gate) visit(ctx context.Context, place *throttle.Place, demands []throttle.Demand) (*throttle.Permit, *throttle.Place, error) {
	permit, later, err := g.limiters.Reserve(ctx, place, demands...)
	if errors.As(err, new(*store.PlaceError)) {
		return g.limiters.Reserve(ctx, nil, demands...)
	}
	return permit, later, err
}

// isLast reports whether an activity must wait in its worker. If it were put aside after its last attempt, Temporal would end the activity. A local
// activity would lose its place.
func isLast(ctx context.Context) bool {
	info := activity.GetInfo(ctx)
	p := info.RetryPolicy // an old server does not tell the policy: then p is nil
	return info.IsLocalActivity || p != nil && p.MaximumAttempts > 0 && info.Attempt >= p.MaximumAttempts
}

// begin returns the permit of an activity that may start, and removes the place of d, which is used up, from the heartbeat details. If ctx ends
// meanwhile, begin gives the permit back and returns the error of ctx.
func begin(ctx context.Context, d details, permit *throttle.Permit) (*throttle.Permit, error) {
	if d.place == nil {
		return permit, nil
	}

	// Temporal may answer the heartbeat that the activity is cancelled: that ends ctx.
	d.record(ctx, nil)
	if err := ctx.Err(); err != nil {
		permit.Cancel()
		return nil, err
	}

	return permit, nil
}

// putAside keeps the place in the heartbeat details and returns the error that asks for a further
// attempt. If the activity is cancelled, it returns the error of ctx.
func putAside(ctx context.Context, d details, place *throttle.Place) error {
	// A cancelled activity has no further attempt.
	d.record(ctx, place)
	if temporal.IsCanceledError(context.Cause(ctx)) {
		return ctx.Err()
	}

	wait := max(time.Millisecond, place.RetryAfter()) // for 0 Temporal would wait as the retry policy says
	return temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("temporalthrottle: put aside for %v, because a limit is full", wait.Round(time.Millisecond)), ErrorType,
		temporal.ApplicationErrorOptions{
			NextRetryDelay: wait,
			Category:       temporal.ApplicationErrorCategoryBenign,
			Cause:          throttle.ErrLimited,
		})
}

// stay waits in the worker. It records heartbeats with the activity's own details, so that the activity does not reach its HeartbeatTimeout. If ctx ends
// first, stay returns the error of ctx.
func stay(ctx context.Context, d details, wait time.Duration) error {
	until := time.Now().Add(wait)
	for {
		d.record(ctx, nil)
		step := time.Until(until)

		// Half of the timeout leaves room for a late heartbeat. Without a timeout there are two heartbeats, at the beginning and at the end.
		if most := activity.GetInfo(ctx).HeartbeatTimeout / 2; most > 0 {
			step = min(step, most)
		}
		if step <= 0 {
			return ctx.Err()
		}

		timer := time.NewTimer(step)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
