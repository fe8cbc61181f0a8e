package fleet_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// A program lets operators see it.
func ExampleStart() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	reporter, err := fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reporter.Close()

	transport, err := throttle.New(throttle.Config{
		Store:    reporter, // the reporter is a store
		Policies: []throttle.Policy{{Name: "shop", Match: "{shop}.example.com/", Limit: store.PerSecond(2)}},
	})
	fmt.Println(transport != nil, err)
	// Output: true <nil>
}

// An operator closes a budget for ten minutes.
func ExampleFleet_Pause() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	pause := func(ctx context.Context) error {
		all, err := fleet.New(client, fleet.Options{})
		if err != nil {
			return err
		}
		target, err := all.Find(ctx, fleet.Query{Name: "shop", Key: "acme"})
		if err != nil {
			return err
		}
		return all.Pause(ctx, target, 10*time.Minute, "anna@desk", "the shop moves")
	}
	_ = pause
}
