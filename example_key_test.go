package throttle_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
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
