package throttletest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/throttletest"
)

// syncOrders is a program under test.
func syncOrders(ctx context.Context, client *http.Client, n int) error {
	for i := range n {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://shop.example.com/orders/%d", i), nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
	}
	return nil
}

var shop = []throttle.Policy{{Name: "orders", Match: "shop.example.com/orders/", Limit: throttle.PerMinute(40)}}

// TestSyncKeepsTheLimit is the test of docs/use/testing.md: an hour of work takes no time, and the upstream has nothing to refuse.
func TestSyncKeepsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := throttletest.Must(throttletest.New(throttletest.Options{Policies: shop, Ban: 5 * time.Minute}))
		client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
			Store: memstore.New(), Policies: shop, Base: api, MaxWait: throttle.Forever, // made in the bubble
		}))}
		if err := syncOrders(t.Context(), client, 2400); err != nil {
			t.Fatal(err)
		}
		if over := api.Excesses(); len(over) > 0 {
			t.Errorf("the upstream counts too many: %+v", over[0])
		}
	})
}

// refusesLikeGitHub writes a primary refusal: 403, no points left until a moment.
func refusesLikeGitHub(w http.ResponseWriter, _ *http.Request, refusal throttletest.Refusal) {
	w.Header().Set("X-RateLimit-Resource", "core")
	w.Header().Set("X-RateLimit-Limit", fmt.Sprint(refusal.Limit.N()))
	w.Header().Set("X-RateLimit-Remaining", "0")
	w.Header().Set("X-RateLimit-Reset", fmt.Sprint(time.Now().Unix()+int64(refusal.Seconds())))
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprint(w, `{"message":"API rate limit exceeded for user ID 1."}`)
}

// refusesLikeStripe writes a refusal of one endpoint: 429, with the reason in a header.
func refusesLikeStripe(w http.ResponseWriter, _ *http.Request, _ throttletest.Refusal) {
	w.Header().Set("Stripe-Rate-Limited-Reason", "endpoint-rate")
	w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprint(w, `{"error":{"code":"rate_limit","type":"invalid_request_error","message":"Request rate limit exceeded."}}`)
}

// refusesLikeOpenAI writes a refusal of requests a minute: 429, with the wait in the message.
func refusesLikeOpenAI(w http.ResponseWriter, _ *http.Request, refusal throttletest.Refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusTooManyRequests)
	fmt.Fprintf(w, `{"error":{"message":"Rate limit reached for gpt-4o on requests per min (RPM): Limit %d. Please try again in %ds.","type":"requests","code":"rate_limit_exceeded"}}`,
		refusal.Limit.N(), refusal.Seconds())
}

// afterAForeignProgram has a program without throttle use up the limits of a table, and then a client with throttle send two
// requests. It prints what the client gets: a refusal of the upstream, and one of throttle, which has understood the first.
func afterAForeignProgram(table []throttle.Policy, refuse throttletest.Form, request func() *http.Request) {
	api := throttletest.Must(throttletest.New(throttletest.Options{Policies: table, Refuse: refuse}))
	for len(api.Refusals()) == 0 {
		resp, err := api.RoundTrip(request())
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}

	arrived := len(api.Arrivals())
	client := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: table, Base: api, MaxWait: throttle.NoWait}))
	for range 2 {
		resp, err := client.RoundTrip(request())
		var limited *throttle.LimitError
		if errors.As(err, &limited) {
			fmt.Printf("throttle: %s is closed\n", limited.Policy)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("the upstream:", resp.Status)
		resp.Body.Close()
	}
	fmt.Println(len(api.Arrivals())-arrived, "arrived")
}

// get returns a request.
func get(url string) *http.Request {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	return req
}

func Example_github() {
	table := github.Policies(github.Options{Account: "address", PerHour: github.Anonymous})
	afterAForeignProgram(table, refusesLikeGitHub, func() *http.Request {
		return get("https://api.github.com/repos/golang/go")
	})
	// Output:
	// the upstream: 403 Forbidden
	// throttle: github-primary is closed
	// 1 arrived
}

func Example_stripe() {
	afterAForeignProgram(stripe.Policies(stripe.Options{Sandbox: true}), refusesLikeStripe, func() *http.Request {
		return get("https://api.stripe.com/v1/customers")
	})
	// Output:
	// the upstream: 429 Too Many Requests
	// throttle: stripe-endpoint is closed
	// 1 arrived
}

func Example_openai() {
	table := openai.Policies(openai.Options{Project: "proj", Requests: 20, Tokens: 1_000_000})
	afterAForeignProgram(table, refusesLikeOpenAI, func() *http.Request {
		body := `{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}`
		req, err := http.NewRequest(http.MethodPost, "https://api.openai.com/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", "application/json")
		return req
	})
	// Output:
	// the upstream: 429 Too Many Requests
	// throttle: openai-requests is closed
	// 1 arrived
}
