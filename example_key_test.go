package throttle_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// An upstream that counts calls per application and API wants one budget for
// each pair. Only the hash of the joined key leaves the program.
func ExampleJoin() {
	policy := throttle.Policy{
		Name:  "app and API",
		Match: "oapi.dingtalk.com/",
		Key:   throttle.Join(throttle.Header("X-App"), throttle.Path),
		Limit: throttle.PerSecond(20),
	}
	for _, path := range []string{"/topapi/user/get", "/topapi/../topapi/user/get", "/user/list"} {
		req, err := http.NewRequest(http.MethodGet, "https://oapi.dingtalk.com"+path, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		req.Header.Set("X-App", "crm")
		fmt.Println(policy.Key(req))
	}
	// Output:
	// 3:crm16:/topapi/user/get
	// 3:crm16:/topapi/user/get
	// 3:crm10:/user/list
}

// Metrics and events name budgets by a hash. This finds the one of a known key.
func ExampleBudgetOf() {
	policy := throttle.Policy{
		Name: "shop", Match: "api.example.com/", Limit: throttle.PerSecond(2), Key: throttle.Query("shop"),
	}
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{policy}})
	if err != nil {
		fmt.Println(err)
		return
	}
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/?shop=books", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(transport.Explain(req)[0].Budget)
	fmt.Println(throttle.BudgetOf("shop", "books"))
	// Output:
	// shop/c9eb30590967
	// shop/c9eb30590967
}
