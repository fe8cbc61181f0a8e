package temporalthrottle_test

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
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

// A worker has such activities. Leave MaximumAttempts of their retry policy at 0.
func ExampleAcquire() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store:    redisstore.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "crm", Limit: throttle.PerSecond(4)}},
	})
	if err != nil {
		panic(err)
	}
	_ = func(w worker.Worker) { w.RegisterActivity(&Activities{limits}) }
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
