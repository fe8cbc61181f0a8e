package feishu_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/feishu"
)

// An API whose tier is known has rows of its own.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: feishu.Policies(feishu.Options{
			APIs: map[string]feishu.Tier{
				"GET /open-apis/contact/v3/users/{user_id}": {PerSecond: 20, PerMinute: 600},
			},
		}),
	}))
	for _, url := range []string{
		"https://open.feishu.cn/open-apis/contact/v3/users/ou_7dab8a3d",
		"https://open.feishu.cn/open-apis/im/v1/chats",
	} {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, charge := range transport.Explain(req) {
			fmt.Println(charge.Budget.Policy, "=", charge.Limit)
		}
	}
	// Output:
	// feishu-api-second GET /open-apis/contact/v3/users/{user_id} = 20/s
	// feishu-api-minute GET /open-apis/contact/v3/users/{user_id} = 600/m
	// feishu-api-second = 50/s
	// feishu-api-minute = 1000/m
}
