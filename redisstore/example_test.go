package redisstore_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// All programs that use the Redis share 20 requests a second. What is wrong with the options is told by throttle.New.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	transport, err := throttle.New(throttle.Config{
		Store:    redisstore.New(client, redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
		MaxWait:  time.Minute,
	})
	fmt.Println(transport != nil, err)

	_ = &http.Client{Transport: transport} // calls of api.example.com
	// Output: true <nil>
}

// While Redis is away each program goes on with its part of each limit. Programs of another system have a namespace of their own.
func ExampleNew() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"localhost:7000", "localhost:7001"}}) // a cluster
	limiter, err := throttle.NewLimiter(
		redisstore.New(client, redisstore.Options{Namespace: "billing", Outage: redisstore.OutageSplit}),
		throttle.Policy{Name: "invoices", Limit: throttle.PerMinute(300)},
	)
	fmt.Println(limiter != nil, err)
	// Output: true <nil>
}
