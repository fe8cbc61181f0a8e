package throttle_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// The documentation promises 5,000 requests an hour, and the upstream refuses the third.
func ExamplePolicy_adaptive() {
	sent := 0
	upstream := base(func(r *http.Request) (*http.Response, error) {
		if sent++; sent > 2 {
			return answer(http.StatusTooManyRequests, "")(r)
		}
		return answer(http.StatusOK, "")(r)
	})
	client := http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{{
			Name:     "documented",
			Limit:    throttle.PerHour(5000),
			Adaptive: true,
		}},
		Base: upstream,
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.Lowered {
				fmt.Printf("%s (%v): %v a window, was %v\n", e.Policy, e.Limit, e.To, e.From)
			}
		},
	}))}
	for range 3 {
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output: documented (5000/h): 3281.25 a window, was 5000
}
