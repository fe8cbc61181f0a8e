package retry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

// The upstream refuses the first request. The policy closes its budget for as
// long as the upstream asks, and the second attempt waits there, behind nobody.
func ExampleNewClient() {
	var requests atomic.Int32
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "0.05")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		io.Copy(w, r.Body)
	}))
	defer upstream.Close()

	client := retry.NewClient(throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "app", Match: "/", Limit: throttle.PerSecond(20)}},
	})))

	resp, err := client.Post(upstream.URL, "text/plain", []byte("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body), err)
	fmt.Println(requests.Load(), "requests")
	// Output:
	// 200 hello <nil>
	// 2 requests
}

// What the throttle refuses is not tried again, and the caller gets the
// throttle's own error.
func ExampleNewClient_refused() {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()

	client := retry.NewClient(throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "app", Match: "/", Limit: throttle.PerHour(1)}},
		MaxWait:  -1,
	})))

	for range 2 {
		resp, err := client.Get(upstream.URL)
		var limited *throttle.LimitError
		if errors.As(err, &limited) {
			fmt.Println("refused by", limited.Policy)
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// refused by app
}
