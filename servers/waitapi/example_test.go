package waitapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// A program in any language asks before each request of its own. The second one of a second would have to wait, and
// its caller does not want to.
func Example() {
	limiters, err := throttle.NewLimiters(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "shop", Limit: throttle.PerHour(1)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := waitapi.New(waitapi.Config{Limiters: limiters})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	for range 2 {
		resp, err := http.Post(server.URL+"/v1/acquire", "application/json", strings.NewReader(`{"demands": [{"policy": "shop"}], "wait": 0}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 429 Too Many Requests
}
