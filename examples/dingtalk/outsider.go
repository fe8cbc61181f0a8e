package main

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// outsiderPath is an API that the pull does not call.
const outsiderPath = "/topapi/v2/user/get"

// An outsider calls this often: 3,000 times a second.
const (
	outsiderEvery = 10 * time.Millisecond
	outsiderCalls = 30
)

// An outsider is another program behind the address of the fleet. It knows of no
// limits, and calls until the address is banned. That its calls have no token
// makes no difference: all count.
type outsider struct {
	client *http.Client
	base   string // the URL of the old host
	banned atomic.Bool
}

func newOutsider(base string, transport http.RoundTripper) *outsider {
	return &outsider{base: base, client: &http.Client{Transport: transport}}
}

// letIn starts the outsider and returns what stops it.
func letIn(ctx context.Context, o *outsider) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { o.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run calls until the ban or the end of the context.
func (o *outsider) run(ctx context.Context) {
	defer o.client.CloseIdleConnections()
	tick := time.NewTicker(outsiderEvery)
	defer tick.Stop()
	for !o.banned.Load() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var calls sync.WaitGroup
		for range outsiderCalls {
			calls.Go(func() { o.call(ctx) })
		}
		calls.Wait()
	}
}

// call makes one call and looks whether it was one too many.
func (o *outsider) call(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base+outsiderPath, nil)
	if err != nil {
		return
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return // a program without limits ignores errors, too
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && refusal(resp.StatusCode, body) == banned {
		o.banned.Store(true)
	}
}
