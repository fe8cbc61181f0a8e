package dingtalk_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(), // redisstore for a fleet
		Policies: dingtalk.Policies(dingtalk.Options{App: "dingabc", Edition: dingtalk.Professional}),
	}))

	req, err := http.NewRequest(http.MethodPost, "https://oapi.dingtalk.com/robot/send?access_token=secret", nil)
	if err != nil {
		panic(err)
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit)
	}
	// Output:
	// dingtalk-ip 10000/20s
	// dingtalk-global unlimited
	// dingtalk-robot 20/m
	// dingtalk-webhooks unlimited
	// dingtalk-api 40/s
	// dingtalk-app unlimited
	// dingtalk-company unlimited
	// dingtalk-company-api unlimited
}
