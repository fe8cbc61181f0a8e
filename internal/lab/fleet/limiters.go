package fleet

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/redis/go-redis/v9"
)

// A Member is the part of a process that its limiter is given.
type Member struct {
	Config Config
	Limit  throttle.Limit
	Redis  *redis.Client     // counted, or nil without Config.Redis
	Base   http.RoundTripper // sends the request, held up by Config.Delay

	events *events
}

// A Limiter wraps a member's Base so that the fleet keeps the limit. The key
// of a request's budget is its header [KeyHeader].
type Limiter func(Member) (http.RoundTripper, error)

// KeyHeader holds the key of a request's budget.
const KeyHeader = "X-Fleet-Key"

// limiters are the built-in limiters, and those a program adds.
func limiters(more map[string]Limiter) map[string]Limiter {
	all := map[string]Limiter{"": throttled, "acquire": acquired}
	maps.Copy(all, more)
	return all
}

// policy is the row that the fleet obeys.
func (m Member) policy() throttle.Policy {
	p := throttle.Policy{Name: m.Config.Name, Match: "/", Limit: m.Limit, Jitter: m.Config.Jitter}
	if m.Config.Keys > 1 {
		p.Key = throttle.Header(KeyHeader)
	}
	return p
}

// store is the fleet's store, its grants recorded.
func (m Member) store() (throttle.Store, error) {
	if m.Redis == nil {
		return nil, errors.New("throttle needs Config.Redis: a fleet shares its budgets")
	}
	return recorder{redisstore.New(m.Redis, redisstore.Options{})}, nil
}

// throttled is throttle's transport.
func throttled(m Member) (http.RoundTripper, error) {
	store, err := m.store()
	if err != nil {
		return nil, err
	}
	return throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   store, Policies: []throttle.Policy{m.policy()},
		Base: m.Base, Observe: m.events.observe,
	})
}

// acquired is throttle's Limiter, asked before each request.
func acquired(m Member) (http.RoundTripper, error) {
	store, err := m.store()
	if err != nil {
		return nil, err
	}

	p := m.policy()
	p.Match, p.Key, p.Keyed = "", nil, p.Key != nil

	l, err := throttle.NewLimiter(store, p)
	if err != nil {
		return nil, err
	}

	return roundTripper(func(r *http.Request) (*http.Response, error) {
		permit, err := l.Acquire(throttle.WithMaxWait(r.Context(), throttle.Forever), r.Header.Get(KeyHeader), 1)
		if err != nil {
			return nil, err
		}

		defer permit.Release()
		return m.Base.RoundTrip(r)
	}), nil
}

// events counts the events of a transport, by kind.
type events struct {
	mu    sync.Mutex
	count map[string]int
}

func (e *events) observe(_ context.Context, ev throttle.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count[ev.Kind.String()]++
}

func (e *events) total() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.count)
}
