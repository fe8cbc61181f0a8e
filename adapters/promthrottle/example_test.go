package promthrottle_test

import (
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A program that counts its own requests, and asks the store what the budgets are like.
func Example() {
	registry, store := prometheus.NewRegistry(), memstore.New()
	policies := []throttle.Policy{{Name: "orders", Match: "api.example.com/", Limit: throttle.PerSecond(40)}}

	metrics := promthrottle.New()
	transport, err := throttle.New(throttle.Config{
		Store: store, Policies: policies, Observe: metrics.Observe,
		Base: answered{}, // leave it out in a program
	})
	if err != nil {
		log.Fatal(err)
	}
	metrics.Follow(transport)
	registry.MustRegister(metrics, promthrottle.Budgets(transport))

	resp, err := (&http.Client{Transport: transport}).Get("https://api.example.com/orders")
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		switch family.GetName() {
		case "throttle_budget_limit", "throttle_budget_used":
			fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output:
	// throttle_budget_limit 40
	// throttle_budget_used 1
}

// answered answers without a network.
type answered struct{}

func (answered) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}
