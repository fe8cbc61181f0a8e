package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// orders are a member's instructions at its start.
type orders struct {
	Config  Config
	Process int
	URL     string // of the upstream; without one every request is answered at once
	Root    []byte // the certificate of the upstream, or nil for plain HTTP
}

// work runs all workers of a member for Config.Load, and returns their samples. It calls ending when the load is over,
// before the workers leave. The first error of a worker ends them all, and so does the end of ctx; then there are no samples.
func (o orders) work(ctx context.Context, transport http.RoundTripper, ending func()) ([]Sample, error) {
	// End the load by a cancellation: under a deadline a limiter refuses requests
	// that cannot start in time, and the last window would look idle.
	load, over := context.WithCancelCause(ctx)
	timer := time.AfterFunc(o.Config.Load, func() {
		ending()
		over(context.Canceled)
	})

	defer timer.Stop()

	samples := make([][]Sample, o.Config.Workers)
	var all sync.WaitGroup
	for i := range samples {
		all.Go(func() {
			var err error
			if samples[i], err = o.loop(load, i, &http.Client{Transport: transport}); err != nil {
				over(err)
			}
		})
	}

	all.Wait()
	if err := context.Cause(load); err != context.Canceled {
		return nil, err
	}

	return slices.Concat(samples...), nil
}

// loop is worker i of the process: it sends a request, waits for the answer and sends the next until ctx ends. It returns a
// sample of each request, also of the one that the end of ctx cut off. A request that fails before is an error.
func (o orders) loop(ctx context.Context, i int, client *http.Client) ([]Sample, error) {
	worker := fmt.Sprintf("%d/%d", o.Process, i)
	var samples []Sample
	for ctx.Err() == nil {
		s := Sample{Worker: worker, Key: o.Config.key(i), Asked: Now()}
		c := &call{}
		err := o.send(context.WithValue(ctx, callKey{}, c), client, s)
		if err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("worker %s: %w", worker, err)
		}

		// The transport has noted the times of this call.
		s.Booked, s.Start = time.Duration(c.booked.Load()), time.Duration(c.start.Load())
		s.OK = err == nil
		if s.OK {
			s.Served = time.Duration(c.served.Load())
		} else {
			s.Served = Now()
		}

		samples = append(samples, s)
	}

	return samples, nil
}

// send sends one request and reads the answer, whatever it is.
func (o orders) send(ctx context.Context, client *http.Client, s Sample) error {
	url := o.URL
	if url == "" {
		url = "http://upstream.invalid/"
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	r.Header.Set(WorkerHeader, s.Worker)
	r.Header.Set(KeyHeader, s.Key)

	resp, err := client.Do(r)
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// base returns the transport under the limiter. It notes when each request was let through, holds it for a random time up
// to Config.Delay, and sends it to the upstream; without an upstream it answers 200 itself.
func (o orders) base() http.RoundTripper {
	next := http.RoundTripper(roundTripper(answer))
	if o.URL != "" {
		next = o.dialer()
	}

	return roundTripper(func(r *http.Request) (*http.Response, error) {
		noted(r.Context()).served.Store(int64(Now()))
		if o.Config.Delay > 0 {
			if err := sleep(r.Context(), rand.N(o.Config.Delay+1)); err != nil {
				return nil, err
			}
		}

		return next.RoundTrip(r)
	})
}

// answer is an upstream that always has time.
func answer(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// dialer returns a transport that trusts the upstream's certificate, if it has one. With Config.Handshake every request
// makes a new connection.
func (o orders) dialer() *http.Transport {
	t := &http.Transport{MaxIdleConnsPerHost: o.Config.Workers, DisableKeepAlives: o.Config.Handshake > 0}
	if root, err := x509.ParseCertificate(o.Root); err == nil {
		pool := x509.NewCertPool()
		pool.AddCert(root)
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return t
}

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

	// A Limiter has no requests: the key is named in each call.
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

// A Stall is a time in which the machine did not let this program run. Its ends
// count from the Unix epoch.
type Stall struct{ From, To time.Duration }

// Length returns how long it was.
func (s Stall) Length() time.Duration { return s.To - s.From }

// WatchStalls sleeps for a millisecond again and again, and calls note when it wakes up more than least too late. It goes
// on until stop is called; stop returns when note has returned for the last time.
func WatchStalls(least time.Duration, note func(Stall)) (stop func()) {
	const nap = time.Millisecond
	told, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			begin := Now()
			select {
			case <-told:
				return
			case <-time.After(nap):
				if s := (Stall{begin + nap, Now()}); s.Length() > least {
					note(s)
				}
			}
		}
	}()

	return func() { close(told); <-done }
}
