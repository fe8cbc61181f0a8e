package temporalthrottle_test

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/temporalthrottle"
)

// Activities have the limiters of their worker.
type Activities struct{ Limits *throttle.Limiters }

// Sync is an activity that calls the API of a tenant.
func (a *Activities) Sync(ctx context.Context, tenant string) error {
	permit, err := temporalthrottle.Acquire(ctx, a.Limits, throttle.Demand{Policy: "crm", Key: tenant})
	if err != nil {
		return err // as it is: Temporal reads from it when to try again
	}
	defer permit.Release()
	return callAPI(ctx, tenant)
}

func callAPI(context.Context, string) error { return nil }

// Register the activity with a worker, and leave MaximumAttempts of its retry policy at 0.
func ExampleAcquire() {
	activities := &Activities{}
	register := func(any) {} // worker.RegisterActivity
	register(activities)
}

// An activity that has progress of its own in its heartbeat details asks whether there is any.
func ExampleHasHeartbeatDetails() {
	_ = func(ctx context.Context, limits *throttle.Limiters) error {
		permit, err := temporalthrottle.Acquire(ctx, limits, throttle.Demand{Policy: "crm"})
		if err != nil {
			return err
		}
		defer permit.Release()
		page := 0
		if temporalthrottle.HasHeartbeatDetails(ctx) {
			if err := activity.GetHeartbeatDetails(ctx, &page); err != nil {
				return err
			}
		}
		activity.RecordHeartbeat(ctx, page+1)
		return nil
	}
}
