package throttle_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
)

// A model's API counts tokens. How many a request costs is known from the answer, so the
// most that it may cost is booked, and the rest is given back.
func Example_tokens() {
	policies := []throttle.Policy{
		{
			Name: "requests", Match: "llm.example.com/v1/", Limit: throttle.PerMinute(60),
			Headroom: map[throttle.Priority]float64{throttle.Low: 0.25}, // batch work leaves a quarter free
		},
		{
			Name: "tokens", Match: "llm.example.com/v1/", Limit: throttle.PerMinute(90_000),
			Cost:   func(r *http.Request) int { return 2_000 + int(r.ContentLength)/4 }, // max_tokens and the prompt
			Settle: feedback.Amount{Fields: []string{"usage.total_tokens"}}.Settle,
		},
		{
			Name: "at once", Match: "llm.example.com/v1/", Limit: throttle.Concurrency(8), // of the whole fleet
		},
	}
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: memstore.New(), Policies: policies,
		Base: answer(200, `{"usage":{"total_tokens":1730}}`, "Content-Type", "application/json"),
	}))
	client := &http.Client{Transport: transport}

	resp, err := client.Post("https://llm.example.com/v1/chat/completions", "application/json",
		strings.NewReader(`{"max_tokens":2000,"messages":[{"role":"user","content":"Why?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()

	tokens, err := transport.Limiter("tokens")
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := tokens.Status(context.Background(), "")
	fmt.Println(status.Used, "of", status.Limit, err)
	// Output: 1730 of 90000/m <nil>
}
