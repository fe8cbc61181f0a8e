package github_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/github"
)

// A comment costs five points, and counts as content.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: github.Policies(github.Options{PerHour: github.Enterprise}),
	}))
	req, err := http.NewRequest(http.MethodPost, "https://api.github.com/repos/octocat/hello/issues/1/comments", strings.NewReader(`{"body":"Thanks!"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, "costs", charge.Cost, "of", charge.Limit)
	}
	// Output:
	// github-primary costs 1 of 15000/h
	// github-in-flight costs 1 of 100 in flight
	// github-points costs 5 of 900/m
	// github-content-minute costs 1 of 80/m
	// github-content-hour costs 1 of 500/h
}
