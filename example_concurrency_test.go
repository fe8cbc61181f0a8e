package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// At most two may run at once, however long each takes.
func ExampleConcurrency() {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "exports", Limit: throttle.Concurrency(2)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	first, _ := limiter.TryAcquire(ctx, "", 1)
	_, _ = limiter.TryAcquire(ctx, "", 1)

	_, err = limiter.TryAcquire(ctx, "", 1)
	fmt.Println(err)
	first.Release()
	_, err = limiter.TryAcquire(ctx, "", 1)
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
		if _, err := limiter.TryAcquire(context.Background(), "", 1); err != nil {
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
		Headroom: map[throttle.Priority]float64{throttle.Low: 0.2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	batch := throttle.WithPriority(ctx, throttle.Low)
	_, err = limiter.TryAcquire(batch, "", 80)
	fmt.Println("batch work:", err)
	_, err = limiter.TryAcquire(batch, "", 1)
	fmt.Println("more of it is held:", err != nil)
	_, err = limiter.TryAcquire(ctx, "", 1)
	fmt.Println("a user's request:", err)
	// Output:
	// batch work: <nil>
	// more of it is held: true
	// a user's request: <nil>
}

// What a call costs is known when it is done.
func ExamplePermit_Settle() {
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
	if err := permit.Settle(ctx, 1730); err != nil { // what the answer said
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
			{Name: "account", Limit: throttle.PerSecond(50)},
			{Name: "address", Limit: throttle.PerSecond(10), Scope: throttle.Node},
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
