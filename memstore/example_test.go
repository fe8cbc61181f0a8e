package memstore_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// One program keeps to 20 requests a second. Its store is made once, and is shared by all that use the same limits.
func Example() {
	transport, err := throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	_ = client // calls of api.example.com
}

// A tenant has a budget of its own, and its status says how much of that is used.
func ExampleNew() {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "mails", Limit: throttle.PerHour(100), Keyed: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := limiter.Acquire(context.Background(), "acme", 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()

	for _, tenant := range []string{"acme", "other"} {
		status, err := limiter.Status(context.Background(), tenant)
		fmt.Println(tenant, status.Used, err)
	}
	// Output:
	// acme 3 <nil>
	// other 0 <nil>
}
