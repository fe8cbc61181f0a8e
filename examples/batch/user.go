package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// betweenUsers is the mean time between two calls of users to the API.
const betweenUsers = 250 * time.Millisecond

// A user is an interactive program beside the job that asks for single orders.
type user struct {
	waits
	who      string
	client   *http.Client
	priority throttle.Priority
}

// newUser returns a user with a configuration, and thus with the budgets of the job.
func newUser(c throttle.Config, priority, ofJob throttle.Priority, begin time.Time) (*user, error) {
	u := &user{waits: waits{begin: begin}, who: "a user with the job's priority", priority: priority}
	if priority > ofJob {
		u.who = "a user, who goes before the job"
	}
	c.Observe = func(_ context.Context, e throttle.Event) { u.note(e) }
	transport, err := throttle.New(c)
	u.client = &http.Client{Transport: transport}
	return u, err
}

// ask asks for orders at random times until ctx ends. It does not wait for answers, as users of a website do
// not wait for each other.
func (u *user) ask(ctx context.Context, orders int, between time.Duration) {
	ctx = throttle.WithPriority(ctx, u.priority)
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		// A random time up to 2*between has the mean between.
		case <-time.After(rand.N(2 * between)):
			asking.Go(func() { u.askOnce(ctx, 1+rand.IntN(orders)) })
		case <-ctx.Done():
			return
		}
	}
}

// askOnce asks for one order. The answer does not matter: the report is about waits.
func (u *user) askOnce(ctx context.Context, id int) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://orders.example.com/v1/orders/%d", id), nil)
	if err != nil {
		return
	}
	if resp, err := u.client.Do(req); err == nil {
		// Read the answer to its end, so that the connection is used again.
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// waits are how long the calls of one program waited for their starts.
type waits struct {
	begin time.Time

	mu      sync.Mutex
	started []wait
}

// A wait is the wait of one call.
type wait struct{ startedAt, length time.Duration }

// note records the wait of a call that starts.
func (w *waits) note(e throttle.Event) {
	if e.Kind != throttle.EventStarted {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append(w.started, wait{time.Since(w.begin), e.Duration})
}

// all returns a copy.
func (w *waits) all() []wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.started)
}

// reach returns a transport that connects to one address, whatever the host of the URL.
func reach(address string) http.RoundTripper {
	return &http.Transport{
		MaxIdleConnsPerHost: workers,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
}
