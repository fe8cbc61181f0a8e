package throttle_test

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// Tenants share one budget. While it is full they take turns, and a tenant of weight 2 has two turns
// where another has one. A crowd of one tenant does not hold up the others.
func ExamplePolicy_share() {
	transport, err := throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{{
			Name:  "model",
			Match: "api.example.com/",
			Limit: throttle.PerSecond(100),
			Share: throttle.Header("X-Tenant"),
			Weight: func(r *http.Request) int {
				weight, _ := strconv.Atoi(r.Header.Get("X-Weight"))
				return weight // 0 means 1
			},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	request, _ := http.NewRequest(http.MethodGet, "https://api.example.com/v1/chat", nil)
	request.Header.Set("X-Tenant", "acme")
	request.Header.Set("X-Weight", "2")
	for _, c := range transport.Explain(request) {
		fmt.Println(c.Budget.Policy, c.Share.ID == store.ShareOf("model", "acme"), c.Share.Weight)
	}
	// Output: model true 2
}
