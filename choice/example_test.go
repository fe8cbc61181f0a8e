package choice_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
	"github.com/fleetthrottle/throttle/memstore"
)

// offline answers instead of a network.
var offline = base(func(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
})

// Two deployments of one's own serve the same requests, each with limits of its own. What
// the first has no room for goes to the second.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), // redisstore.New(client, redisstore.Options{}) for a fleet
		Policies: []throttle.Policy{
			{Name: "sweden", Match: "sweden.example.com/", Limit: throttle.PerSecond(2)},
			{Name: "france", Match: "france.example.com/", Limit: throttle.PerSecond(1)},
		},
		Base: offline, // leave it out in a program
	}))
	deployment := func(name, key string) choice.Variant {
		return choice.Variant{Name: name, Change: func(r *http.Request) error {
			r.URL.Host = name + ".example.com"
			r.Header.Set("Api-Key", key)
			return nil
		}}
	}
	deployments, err := choice.New(transport, deployment("sweden", "key 1"), deployment("france", "key 2"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: deployments}
	for range 3 {
		resp, err := client.Get("https://sweden.example.com/chat")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(choice.Of(resp.Request.Context()))
	}
	// Output:
	// sweden
	// sweden
	// france
}
