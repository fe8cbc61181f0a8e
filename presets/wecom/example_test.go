package wecom_test

import (
	"fmt"
	"net/http"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/wecom"
)

// A service provider has larger limits for its address, and a budget for each
// company that it calls for.
func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: wecom.Policies(wecom.Options{
			Company:     func(r *http.Request) string { return r.Header.Get("X-Corp") },
			IPPerMinute: wecom.ProviderIPPerMinute,
			IPPerHour:   wecom.ProviderIPPerHour,
		}),
	}))
	req, err := http.NewRequest(http.MethodPost, "https://qyapi.weixin.qq.com/cgi-bin/checkin/getcheckindata?access_token=secret", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, "=", charge.Limit)
	}
	// Output:
	// wecom-company-minute = 10000/m
	// wecom-company-hour = 150000/h
	// wecom-ip-minute = 40000/m
	// wecom-ip-hour = 1200000/h
	// wecom-checkin = 600/m
}
