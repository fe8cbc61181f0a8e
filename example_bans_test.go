package throttle_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/retry"
)

// A ready table, with what each refusal closes, and a client that repeats what was
// refused when the table says that it may.
func Example_preset() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: dingtalk.Policies(dingtalk.Options{App: "my-app-key"}),
		Base:     offline,
	}))
	client := retry.NewClient(transport).StandardClient() // or *retryablehttp.Client itself

	resp, err := client.Get("https://oapi.dingtalk.com/topapi/v2/user/get")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}

// A policy for an upstream that no preset is for: it refuses with 429, with a code
// in a 200, and says what is left.
func Example_feedback() {
	policy := throttle.Policy{
		Name: "orders", Match: "api.example.com/orders/", Limit: throttle.PerMinute(100),
		Penalty: feedback.First(
			feedback.When{Status: []int{429, 503}}.Penalty(feedback.RetryAfter(time.Second)),
			feedback.Codes{
				Fields: []string{"error.code"},
				Lasts:  map[string]time.Duration{"too_fast": time.Second, "banned": 5 * time.Minute},
			}.Penalty,
		),
		Quota: feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Quota,
	}

	banned := answer(200, `{"error":{"code":"banned"}}`, "Content-Type", "application/json")
	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: []throttle.Policy{policy}, Base: banned,
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.Penalized {
				fmt.Println(e.Policy, "is closed for", e.Duration)
			}
		},
	}))}
	resp, err := client.Get("https://api.example.com/orders/17")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err) // the caller sees all of it
	// Output:
	// orders is closed for 5m0s
	// {"error":{"code":"banned"}} <nil>
}

// An operator pauses a budget of a transport. The key is what the policy's Key
// returns: here the name of the address.
func ExampleTransport_Limiter() {
	policies := dingtalk.Policies(dingtalk.Options{Address: "office"})
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies, Base: offline,
	}))
	ctx := context.Background()

	operator, err := transport.Limiter("dingtalk-ip") // a policy of the table
	if err == nil {
		err = operator.Pause(ctx, "office", 10*time.Minute) // for the whole fleet
	}
	fmt.Println(err)

	req, err := http.NewRequestWithContext(throttle.WithMaxWait(ctx, time.Minute), http.MethodGet, "https://oapi.dingtalk.com/user/get", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = transport.RoundTrip(req)
	fmt.Println(err)
	// Output:
	// <nil>
	// throttle: policy "dingtalk-ip" (10000/20s): closed by a penalty, would wait 10m0s, but MaxWait is 1m0s
}

// An operator pauses a budget for the whole fleet, and resumes it.
func ExampleLimiter_Pause() {
	store, ctx := memstore.New(), context.Background()
	operator, err := throttle.NewLimiter(store, throttle.Policy{Name: "api", Limit: throttle.PerSecond(20)})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = operator.Pause(ctx, "", 10*time.Minute) // sleeping callers with a start before then hear of it
	fmt.Println(err)

	_, err = operator.TryAcquire(ctx, "", 1)
	fmt.Println(err)

	err = operator.Resume(ctx, "")
	fmt.Println(err)

	_, err = operator.TryAcquire(ctx, "", 1)
	fmt.Println(err)
	// Output:
	// <nil>
	// throttle: policy "api" (20/s): closed by a penalty, would wait 10m0s, but may not wait at all
	// <nil>
	// <nil>
}
