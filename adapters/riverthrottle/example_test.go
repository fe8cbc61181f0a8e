package riverthrottle_test

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/riverthrottle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// All workers together call the API of a shop at most twice a second. A job that would have to wait is snoozed.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiters, err := throttle.NewLimiters(throttle.Config{
		Store:    redisstore.New(client, redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "shop", Limit: throttle.PerSecond(2)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate, err := riverthrottle.New(limiters, riverthrottle.Options{
		Demands: func(*rivertype.JobRow) []throttle.Demand { return []throttle.Demand{{Policy: "shop"}} },
	})
	fmt.Println(gate != nil, err)

	_ = river.Config{Middleware: []rivertype.Middleware{gate}} // the configuration of the program's river.NewClient
	// Output: true <nil>
}
