package throttle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/store"
)

func ExampleParseLimit() {
	for _, text := range []string{
		"10000 per 20 seconds",
		"40/s paced",
		"100/m fixed",
		"5000/month Asia/Shanghai",
		"40/d",
	} {
		limit, err := throttle.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit)
	}
	// Output:
	// 10000/20s
	// 40/s paced
	// 100/m fixed
	// 5000/month Asia/Shanghai
	// throttle: limit "40/d": "d" at offset 3 is not clear (is it "day", by the calendar, or any "24h"?); understood are "40/s", "10000/20s", "40/s paced", "100/m fixed", "100/day", "5000/month Asia/Shanghai", "2/s burst 40", "20 in flight", "unlimited" and "told"
}

// A limit stands in a configuration as its text.
func ExampleLimit_UnmarshalText() {
	var config struct{ Limit throttle.Limit }
	if err := json.Unmarshal([]byte(`{"Limit": "20/s"}`), &config); err != nil {
		fmt.Println(err)
	}
	fmt.Println(config.Limit.N(), "in", config.Limit.Per())
	// Output: 20 in 1s
}

// An upstream that counts calls per application and API wants one budget for
// each pair. Only the hash of the joined key leaves the program.
func ExampleJoin() {
	policy := throttle.Policy{
		Name:  "app and API",
		Match: "oapi.dingtalk.com/",
		Key:   throttle.Join(throttle.Header("X-App"), throttle.RawPath),
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
	fmt.Println(store.BudgetOf("shop", "books"))
	// Output:
	// shop/c9eb30590967
	// shop/c9eb30590967
}

// At most two may run at once, however long each takes.
func ExampleConcurrency() {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "exports", Limit: throttle.Concurrency(2)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	first, _ := limiter.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	_, _ = limiter.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)

	_, err = limiter.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	fmt.Println(err)
	first.Release()
	_, err = limiter.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	fmt.Println(err)
	// Output:
	// throttle: policy "exports" (2 in flight): no room yet, but may not wait at all
	// <nil>
}

// An upstream that gives one token a minute, and saves up to twenty.
func ExampleTokenBucket() {
	limit := throttle.TokenBucket(1, time.Minute, 20)
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "reports", Limit: limit})
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := 0
	for {
		if _, err := limiter.Acquire(throttle.WithMaxWait(context.Background(), throttle.NoWait), "", 1); err != nil {
			break
		}
		sent++
	}
	fmt.Println(limit, "lets", sent, "go at once")
	// Output: 1/m burst 20 lets 20 go at once
}

// Batch work leaves a fifth of the limit to everybody else.
func ExampleWithPriority() {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{
		Name: "api", Limit: throttle.PerHour(100),
		Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	batch := throttle.WithPriority(ctx, throttle.PriorityLow)
	_, err = limiter.Acquire(throttle.WithMaxWait(batch, throttle.NoWait), "", 80)
	fmt.Println("batch work:", err)
	_, err = limiter.Acquire(throttle.WithMaxWait(batch, throttle.NoWait), "", 1)
	fmt.Println("more of it is held:", err != nil)
	_, err = limiter.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	fmt.Println("a user's request:", err)
	// Output:
	// batch work: <nil>
	// more of it is held: true
	// a user's request: <nil>
}

// What a call costs is known when it is done.
func ExamplePermit_Tell() {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "tokens", Limit: throttle.PerHour(10_000)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	permit, err := limiter.Acquire(ctx, "", 500) // an estimate
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()
	if err := permit.Tell(ctx, throttle.Answer{}.WithCost(1730)); err != nil { // what the answer said
		fmt.Println(err)
	}
	status, err := limiter.Status(ctx, "")
	fmt.Println(status.Used, err)
	// Output: 1730 <nil>
}

// The fleet shares one limit, and each process keeps to another.
func ExampleScope() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{
			{Name: "account", Match: "api.example.com/", Limit: throttle.PerSecond(50)},
			{Name: "address", Match: "api.example.com/", Limit: throttle.PerSecond(10), Scope: throttle.ScopeNode},
		},
	}))
	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, charge := range transport.Explain(req) {
		fmt.Println(charge.Budget.Policy, charge.Limit, "node:", charge.Node)
	}
	// Output:
	// account 50/s node: false
	// address 10/s node: true
}

// The documentation promises 5,000 requests an hour, and the upstream refuses the third.
func ExamplePolicy_adaptive() {
	sent := 0
	upstream := base(func(r *http.Request) (*http.Response, error) {
		if sent++; sent > 2 {
			return answer(http.StatusTooManyRequests, "")(r)
		}
		return answer(http.StatusOK, "")(r)
	})
	client := http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(),
		Policies: []throttle.Policy{{
			Name:     "documented",
			Match:    "api.example.com/",
			Limit:    throttle.PerHour(5000),
			Adaptive: true,
		}},
		Base: upstream,
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventLowered {
				fmt.Printf("%s (%v): %v a window, was %v\n", e.Policy, e.Limit, e.To, e.From)
			}
		},
	}))}
	for range 3 {
		resp, err := client.Get("http://api.example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output: documented (5000/h): 3281.25 a window, was 5000
}

// A function that knows its upstream's own refusal. It says nothing of other answers, so
// the usual ones are left to RetryAfter.
func ExampleAnswer() {
	policy := throttle.Policy{
		Name: "p", Match: "api.example.com/", Limit: throttle.PerSecond(9),
		Answer: func(resp *http.Response) throttle.Answer {
			if resp.StatusCode == http.StatusTeapot { // this address is banned
				return throttle.Refused(2 * time.Minute)
			}
			return throttle.Answer{}
		},
	}

	for _, upstream := range []http.RoundTripper{
		answer(http.StatusTeapot, ""), answer(http.StatusTooManyRequests, "", "Retry-After", "30"), answer(http.StatusNotFound, ""),
	} {
		client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
			Store: memstore.New(), Policies: []throttle.Policy{policy}, Base: upstream,
		}))}
		resp, err := client.Get("https://api.example.com/")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(throttle.AnswerOf(resp)) // what a retrier is told
	}
	// Output:
	// refused, closes for 2m0s
	// refused, closes for 30s
	// nothing
}

// What the default makes of a 429.
func ExampleRetryAfter() {
	limited := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}}
	fmt.Println(throttle.RetryAfter(limited))

	vague := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"soon"}}}
	fmt.Println(throttle.RetryAfter(vague))
	// Output:
	// refused, closes for 30s
	// refused, closes for 1s
}

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
		Answer: feedback.All(
			feedback.Codes{
				Fields: []string{"error.code"},
				Lasts:  map[string]time.Duration{"too_fast": time.Second, "banned": 5 * time.Minute},
			}.Answer,
			feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Answer,
		), // and Retry-After, where neither says anything
	}

	banned := answer(200, `{"error":{"code":"banned"}}`, "Content-Type", "application/json")
	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: []throttle.Policy{policy}, Base: banned,
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventPenalized {
				fmt.Println(e.Policy, "is closed for", e.Duration.Round(time.Second))
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

	_, err = operator.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	fmt.Println(err)

	err = operator.Resume(ctx, "")
	fmt.Println(err)

	_, err = operator.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	fmt.Println(err)
	// Output:
	// <nil>
	// throttle: policy "api" (20/s): closed by a penalty, would wait 10m0s, but may not wait at all
	// <nil>
	// <nil>
}
