package slack_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/slack"
)

// A method is charged to the row of its tier.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: slack.Policies(slack.Options{
			Methods: map[string]slack.Tier{"users.info": slack.Tier4},
		}),
	}))
	for _, method := range []string{"users.info", "users.list", "conversations.history", "chat.postMessage"} {
		req, err := http.NewRequest(http.MethodPost, "https://slack.com/api/"+method, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, charge := range transport.Explain(req) {
			fmt.Println(method+":", charge.Budget.Policy, "=", charge.Limit)
		}
	}
	// Output:
	// users.info: slack-tier-4 = 100/m
	// users.list: slack-tier-2 = 20/m
	// conversations.history: slack-tier-3 = 50/m
	// chat.postMessage: slack-message = 1/s
}
