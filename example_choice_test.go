package throttle_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// Two deployments of one's own serve the same requests, each with limits of its own. What
// the first has no room for goes to the second.
func ExampleChoice() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), // redisstore.New(client, redisstore.Options{}) for a fleet
		Policies: []throttle.Policy{
			{Name: "sweden", Match: "sweden.example.com/", Limit: throttle.PerSecond(2)},
			{Name: "france", Match: "france.example.com/", Limit: throttle.PerSecond(1)},
		},
		Base: offline, // leave it out in a program
	}))
	deployment := func(name, key string) throttle.Variant {
		return throttle.Variant{Name: name, Change: func(r *http.Request) error {
			r.URL.Host = name + ".example.com"
			r.Header.Set("Api-Key", key)
			return nil
		}}
	}
	choice, err := throttle.NewChoice(transport, deployment("sweden", "key 1"), deployment("france", "key 2"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: choice}
	for range 3 {
		resp, err := client.Get("https://sweden.example.com/chat")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(throttle.VariantOf(resp.Request.Context()))
	}
	// Output:
	// sweden
	// sweden
	// france
}

// Either of two render farms can do the job: the one that is free first does it.
func ExampleLimiters_AcquireFirst() {
	limits, err := throttle.NewLimiters(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{
			{Name: "large farm", Limit: throttle.Concurrency(1)},
			{Name: "small farm", Limit: throttle.PerMinute(1)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		permit, i, err := limits.AcquireFirst(context.Background(),
			throttle.Alternative{Demands: []throttle.Demand{{Policy: "large farm"}}},
			throttle.Alternative{Demands: []throttle.Demand{{Policy: "small farm"}}},
		)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer permit.Release()
		fmt.Println([]string{"large", "small"}[i])
	}
	// Output:
	// large
	// small
}
