package shopify_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/shopify"
)

// Each store has a bucket of its own.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: shopify.Policies(shopify.Options{Plan: shopify.Advanced}),
	}))
	for _, line := range []struct{ method, url string }{
		{http.MethodGet, "https://acme.myshopify.com/admin/api/2026-10/orders.json"},
		{http.MethodPost, "https://acme.myshopify.com/admin/api/2026-10/graphql.json"},
	} {
		req, err := http.NewRequest(line.method, line.url, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, charge := range transport.Explain(req) {
			fmt.Println(charge.Budget.Policy, "costs", charge.Cost, "of", charge.Limit)
		}
	}
	// Output:
	// shopify-rest costs 1 of 4/s burst 80
	// shopify-graphql costs 100 of 200/s burst 2000
}
