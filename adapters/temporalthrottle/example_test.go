package temporalthrottle_test

import (
	"context"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/temporalthrottle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// Activities have the gate of their worker.
type Activities struct{ Gate *temporalthrottle.Gate }

// Sync is an activity that calls the API of a tenant.
func (a *Activities) Sync(ctx context.Context, tenant string) error {
	permit, err := a.Gate.Acquire(ctx, throttle.Demand{Policy: "crm", Key: tenant})
	if err != nil {
		return err // as it is: Temporal reads from it when to try again
	}
	defer permit.Release()
	return callAPI(ctx, tenant)
}

func callAPI(context.Context, string) error { return nil }

// A worker has such activities. Leave MaximumAttempts of their retry policy at 0.
func ExampleGate() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store:    redisstore.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}), redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "crm", Keyed: true, Limit: throttle.PerSecond(4)}}, // of each tenant
	})
	if err != nil {
		panic(err)
	}
	gate, err := temporalthrottle.New(limits)
	if err != nil {
		panic(err)
	}
	_ = func(w worker.Worker) { w.RegisterActivity(&Activities{gate}) }
}

// An activity that has progress of its own in its heartbeat details asks whether there is any.
func ExampleHasHeartbeatDetails() {
	_ = func(ctx context.Context, gate *temporalthrottle.Gate) error {
		permit, err := gate.Acquire(ctx, throttle.Demand{Policy: "crm", Key: "acme"})
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
