package throttle

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Config is what [New] needs. The zero value of every field but Store is
// useful.
type Config struct {
	// Store keeps the budgets: memstore.New() for one process,
	// redisstore.New(client, nil) for a fleet. Required, because that is the
	// question a limit raises.
	Store Store

	// Policies are the limits. They can be replaced later: see
	// [Transport.SetPolicies]. Defaults to none: every request passes.
	Policies []Policy

	// Base sends the requests. Defaults to [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait bounds how long a request is held. Negative: not at all.
	// Defaults to 0: as long as the request's context allows.
	MaxWait time.Duration

	// Observe is told what happens to each request. It is called on the
	// request's way, by many goroutines, and must not block. A panic ends
	// there, and Observe is told of it by a [FunctionFailed]. Defaults to nil:
	// nobody is told.
	Observe func(context.Context, Event)
}

// A Transport is an [http.RoundTripper] that holds each request until all its
// policies have room for it, then hands it to its base. It is safe for
// concurrent use and has nothing to close.
type Transport struct {
	store    Store
	base     http.RoundTripper
	maxWait  time.Duration
	observe  func(context.Context, Event)
	policies atomic.Pointer[policySet]
	dials    dialEstimator
	rtt      rttEstimator
}

// New returns a transport. It reports every mistake in the configuration at
// once, each a *[ConfigError], and sends nothing.
func New(c Config) (*Transport, error) {
	t := &Transport{store: c.Store, base: c.Base, maxWait: c.MaxWait, observe: observer(c.Observe).guarded()}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	var missing error
	if c.Store == nil {
		missing = &ConfigError{"", "Store", errors.New("is required: memstore.New() for one process, redisstore.New(client, nil) for a fleet")}
	}
	if err := errors.Join(missing, t.SetPolicies(c.Policies)); err != nil {
		return nil, err
	}
	return t, nil
}

// Must returns t and panics if err is not nil. It is meant for configurations
// written as literals.
func Must(t *Transport, err error) *Transport {
	if err != nil {
		panic(err)
	}
	return t
}

// SetPolicies replaces the policies, at once and for all requests to come.
// Budgets keep their state by policy name and key, so no limit starts afresh.
// Requests that are waiting look at their policies again: if these changed, they
// take a new place. In case of an error nothing changes.
func (t *Transport) SetPolicies(policies []Policy) error {
	next, err := newPolicySet(policies)
	if err != nil {
		return err
	}
	if last := t.policies.Swap(next); last != nil {
		close(last.replaced)
	}
	return nil
}

// Explain returns what sending the request would cost which budgets: one charge
// for each policy that it matches. It sends nothing and asks no store. Charges
// whose policy cannot price the request are left out.
func (t *Transport) Explain(req *http.Request) []Charge {
	b, _ := t.policies.Load().quote(req)
	return b.charges
}

// CloseIdleConnections passes the call on to the base, if it understands it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Unwrap returns the base.
func (t *Transport) Unwrap() http.RoundTripper { return t.base }
