package throttle

import (
	"errors"
	"net/http"
	"runtime"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A Transport is an [http.RoundTripper] that holds each request until all its
// policies have room for it, then hands it to its base. It is safe for
// concurrent use and has nothing to close.
//
// Only the near future is booked: 350 ms, or more where a window is longer than two
// seconds or the store is far away. Requests that have to wait for longer stand in
// line, by arrival, for the whole fleet. The line moves up when waiters leave, a request
// turns out to have cost less, a limit is raised, or a ban ends. A request may lose its
// start, because a connection took too long or a penalty came. Then it goes before all
// requests that came later.
//
// A Transport never retries. It belongs inside a retrier, so that every attempt is charged;
// the other way round one permit pays for all of them. [AnswerOf] tells retriers what the
// policies make of an answer. A [Choice] is a Transport for requests that several deployments can
// answer.
type Transport struct {
	engine
	base     http.RoundTripper
	policies livePolicies
	dials    dialEstimator
}

// New returns a transport. It reports every mistake in the configuration at
// once, each a *[ConfigError], and sends nothing.
func New(c Config) (*Transport, error) {
	t := &Transport{base: c.Base}
	if err := errors.Join(t.configure(c), t.SetPolicies(c.Policies)); err != nil {
		return nil, err
	}
	if t.base == nil {
		t.useDefaultBase()
	}
	return t, nil
}

// idleConnsPerHost is how many idle connections to a host the default base keeps.
const idleConnsPerHost = 256

// useDefaultBase sets the base of a transport whose Config names none: see
// [Config.Base].
func (t *Transport) useDefaultBase() {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t.base = http.DefaultTransport
		return
	}

	base := standard.Clone()
	if base.MaxIdleConnsPerHost == 0 {
		// MaxIdleConns is a bound over all hosts, and would close connections of the
		// workers as well.
		base.MaxIdleConnsPerHost, base.MaxIdleConns = idleConnsPerHost, 0
	}
	t.base = base

	// Nobody can use the idle connections of a transport that is gone.
	runtime.AddCleanup(t, (*http.Transport).CloseIdleConnections, base)
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
func (t *Transport) SetPolicies(policies []Policy) error { return t.policies.set(policies) }

// Policies returns a copy of the policies as they are now, as they were given
// to [New] or [Transport.SetPolicies].
func (t *Transport) Policies() []Policy { return slices.Clone(t.policies.Load().given) }

// Explain returns what sending the request would cost which budgets: one charge
// for each policy that it matches. It sends nothing and asks no store. Charges
// whose policy cannot price the request are left out.
func (t *Transport) Explain(req *http.Request) []store.Charge {
	b, _ := t.policies.Load().quote(req)
	return b.charges
}

// CloseIdleConnections calls the method of the same name of the base, if the base has
// one. The default base belongs to this transport alone, so no other connection is closed.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Unwrap returns the base.
func (t *Transport) Unwrap() http.RoundTripper { return t.base }
