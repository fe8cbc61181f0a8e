package browsertest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Policies returns the policies of a scene: an open platform, a language model,
// a warehouse, and a shadow policy.
func Policies() []throttle.Policy {
	byPath := func(r *http.Request) string { return r.URL.Path }
	return []throttle.Policy{
		{Name: "dingtalk api", Match: "oapi.dingtalk.com/", Key: byPath, Limit: throttle.PerSecond(20)},
		{Name: "dingtalk address", Match: "oapi.dingtalk.com/", Limit: throttle.SlidingWindow(10_000, 20*time.Second)},
		{Name: "openai requests", Match: "api.openai.com/v1/", Limit: throttle.PerMinute(500)},
		{Name: "openai at once", Match: "api.openai.com/v1/", Limit: throttle.Concurrency(16)},
		{Name: "warehouse", Match: "warehouse.example.com/", Limit: throttle.PerSecond(40)},
		{Name: "warehouse trial", Match: "warehouse.example.com/", Limit: throttle.PerSecond(15), Shadow: true},
	}
}

// A caller makes one call after the next.
type caller struct {
	url   string
	pause time.Duration // between two calls
	takes time.Duration // duration of a call
}

// callers are the calls of a program. Some exceed the limits.
var callers = []caller{
	{"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0}, {"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0},
	{"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0}, {"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0},
	{"https://oapi.dingtalk.com/topapi/v2/department/listsub", 300 * time.Millisecond, 0},
	{"https://oapi.dingtalk.com/topapi/message/corpconversation/asyncsend_v2", 700 * time.Millisecond, 0},
	{"https://api.openai.com/v1/responses", 1500 * time.Millisecond, 900 * time.Millisecond},
	{"https://api.openai.com/v1/responses", 2 * time.Second, 1200 * time.Millisecond},
	{"https://warehouse.example.com/orders", 90 * time.Millisecond, 0},
	{"https://warehouse.example.com/stock", 250 * time.Millisecond, 0},
}

// Run makes the program's calls until ctx ends.
func Run(ctx context.Context, l *throttle.Limiters) {
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(func() { c.run(ctx, l) })
	}
	all.Wait()
}

// run does the caller's work again and again, until ctx ends.
func (c *caller) run(ctx context.Context, l *throttle.Limiters) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		panic(err)
	}

	for ctx.Err() == nil {
		permit, err := l.AcquireRequest(r)
		if err != nil {
			// The call was refused, or ctx has ended.
			wait(ctx, time.Second)
			continue
		}

		wait(ctx, c.takes)
		permit.Release()
		wait(ctx, c.pause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
