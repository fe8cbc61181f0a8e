package main

import (
	"context"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/retry"
)

// newClient returns a client whose calls keep within the policies, together
// with every other program that uses the same store, and that repeats what is
// refused all the same. This is all that a program needs in order to be throttled.
func newClient(store throttle.Store, rows []throttle.Policy, base http.RoundTripper,
	observe func(context.Context, throttle.Event)) (*http.Client, error) {
	t, err := throttle.New(throttle.Config{
		Store:    store,
		Policies: rows,
		Base:     base,
		Observe:  observe,
	})
	if err != nil {
		return nil, err
	}
	// The throttle is inside: each repeat is charged, and waits where its budget
	// is closed. No Timeout: waiting for one's turn would count.
	return retry.NewClient(t).StandardClient(), nil
}

// newBase keeps a connection for each worker. The default of two idle ones per
// host would make most calls dial anew.
func newBase(conns int) *http.Transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = conns
	base.ResponseHeaderTimeout = 30 * time.Second // instead of Timeout: counted from the moment of sending
	return base
}
