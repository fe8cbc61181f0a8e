package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outsiderPath is an API that the pull does not call.
const outsiderPath = "/topapi/v2/user/get"

// letIn starts an outsider, a foreign program behind the address of the fleet, and
// returns what ends it. The outsider knows of no limits, and makes 3,000 calls a
// second until the address is banned.
func letIn(ctx context.Context, base string, transport http.RoundTripper) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	client := &http.Client{Transport: transport}
	var banned atomic.Bool
	call := func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+outsiderPath, nil)
		if err != nil {
			return
		}

		resp, err := client.Do(req)
		if err != nil {
			return // a program without limits ignores errors, too
		}

		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if strings.Contains(string(body), `"punish":"deny"`) {
			banned.Store(true)
		}
	}

	var running sync.WaitGroup
	running.Go(func() {
		defer client.CloseIdleConnections()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()

		for !banned.Load() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}

			var calls sync.WaitGroup
			for range 30 {
				calls.Go(call)
			}

			calls.Wait()
		}
	})

	return func() {
		cancel()
		running.Wait()
	}
}
