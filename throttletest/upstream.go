// Package throttletest is a third-party API for tests: an [Upstream] keeps the limits of any
// table of policies as an upstream counts them, refuses in the form of a provider, can ban, and
// records each request that found no room.
//
//	table := github.Policies(github.Options{})
//	api := throttletest.Must(throttletest.New(throttletest.Options{Policies: table}))
//	transport, err := throttle.New(throttle.Config{
//		Store:    memstore.New(),
//		Policies: table,
//		Base:     api, // in place of the network
//	})
//	// … the calls of the program under test …
//	require.Empty(t, api.Excesses())
//
// An Upstream is an [http.RoundTripper]: as the base of a transport it answers in the same
// process, also in virtual time (testing/synctest). It is an [http.Handler], too: for a program
// that needs a URL, or runs as several processes, [net/http/httptest.NewServer] serves it. A
// preset has an option for the host of that URL.
//
// # How it counts
//
// An Upstream has a counter of its own for each budget, which shares no code with the stores. It
// counts when a request arrives:
//
//	SlidingWindow    the costs of any interval of the length that ends now
//	FixedWindow      the costs since the window began, also in the calendar's windows
//	LeakyBucket      the time since the last request
//	TokenBucket      a bucket that is full at first
//	Concurrency      the requests whose answer is not written yet
//	Unlimited, Told  nothing
//
// Shadow, Scope, Jitter, Headroom and Share of a policy are the client's own, and have no effect.
// A refused request is not counted.
//
// The page on [testing] has a test to copy.
//
// [testing]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/testing.md
package throttletest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// Options configure an [Upstream]. The zero value of every field except Policies is useful.
type Options struct {
	// Policies are the limits that the upstream keeps, such as the rows of a preset. Their
	// Match, Key, Cost and Limit count. Required.
	Policies []throttle.Policy

	// Refuse writes the answer to a refused request, in the form of the provider. Defaults to
	// [TooManyRequests].
	Refuse Form

	// Ban is the time for which a budget refuses every request, from a request that found no room on.
	// It defaults to 0: the budget refuses only requests that find no room.
	Ban time.Duration

	// Lenient says that the upstream refuses and bans nobody, and only records and counts. Defaults
	// to false.
	Lenient bool

	// Answer answers the requests that the limits let through. Defaults to an empty answer
	// with the status 200.
	Answer http.Handler
}

// A Form writes the answer to a refused request, as a provider does.
type Form func(w http.ResponseWriter, r *http.Request, refusal Refusal)

// A Refusal is why an [Upstream] refuses a request.
type Refusal struct {
	Policy     string
	Limit      throttle.Limit
	RetryAfter time.Duration // until there is room, or until the ban ends. 0 means unknown.
	Banned     bool          // a ban refuses the request, or begins with it
}

// TooManyRequests is a [Form]: the status 429, with a Retry-After in whole seconds, at least one.
func TooManyRequests(w http.ResponseWriter, _ *http.Request, refusal Refusal) {
	w.Header().Set("Retry-After", strconv.Itoa(refusal.Seconds()))
	http.Error(w, "too many requests: "+refusal.Policy, http.StatusTooManyRequests)
}

// Seconds returns RetryAfter in whole seconds, rounded up, at least one.
func (r Refusal) Seconds() int {
	return max(1, int((r.RetryAfter+time.Second-1)/time.Second))
}

// An Upstream is an API that keeps limits: see the package documentation. Create it with [New]. It is
// safe for concurrent use, and has nothing to close.
type Upstream struct {
	options Options
	table   *throttle.Transport // says which budgets a request has, and sends nothing

	mu       sync.Mutex
	budgets  map[store.Budget]*counter
	arrivals []Arrival
	excesses []Excess
	bans     int
}

// An Arrival is a request that reached an [Upstream].
type Arrival struct {
	At       time.Time
	Method   string
	Path     string
	Policies []string // the policies under which it costs something
	Refused  string   // the policy that refused it, or ""
}

// An Excess is a request that found no room under a policy, whether it was refused or not.
type Excess struct {
	At     time.Time
	Policy string
	Budget string // the policy and the beginning of its hashed key, as in events
	Limit  throttle.Limit
	Count  int // the use of the limit, with this request. A LeakyBucket and a TokenBucket count nothing: 0.
}

// New returns an upstream. It returns an error if there are no policies, or if [throttle.New] does for the policies.
func New(o Options) (*Upstream, error) {
	if len(o.Policies) == 0 {
		return nil, errors.New("throttletest: Options.Policies is required")
	}

	table, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: o.Policies})
	if err != nil {
		return nil, err
	}

	if o.Refuse == nil {
		o.Refuse = TooManyRequests
	}
	if o.Answer == nil {
		o.Answer = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}

	return &Upstream{options: o, table: table, budgets: make(map[store.Budget]*counter)}, nil
}

// Must returns u, and panics if err is not nil.
func Must(u *Upstream, err error) *Upstream {
	if err != nil {
		panic(err)
	}
	return u
}

// maxBody is how much of a body is read for policies that look at it.
const maxBody = 1 << 20

// ServeHTTP implements [http.Handler]: it counts the request, and answers it with Refuse or Answer. A request whose body
// cannot be read is not counted, and gets a 400.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}

	// Answer and Refuse read the whole body, and policies its beginning.
	rest := r.Body
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}

	// A server's request keeps its host in a field of its own; policies read a client's request.
	sent := r.Clone(r.Context())
	sent.URL.Host, sent.URL.Scheme = r.Host, "https"
	sent.Body = io.NopCloser(bytes.NewReader(body))
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }

	refusal, end := u.arrive(sent)
	defer end()

	// A server sets a Date by itself, and the recorder of RoundTrip does not.
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if refusal != nil {
		u.options.Refuse(w, r, *refusal)
		return
	}
	u.options.Answer.ServeHTTP(w, r)
}

// RoundTrip implements [http.RoundTripper] without a network. If the request's context has ended, RoundTrip returns its error and
// counts nothing.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}

	// A RoundTripper must not change the request. A server's request has a host, a body and the address of its client.
	in := r.Clone(r.Context())
	in.RemoteAddr = "192.0.2.1:1"
	if in.Host == "" {
		in.Host = in.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()

	w := httptest.NewRecorder()
	u.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = r

	return resp, nil
}

// arrive logs a request, and counts it unless it is refused. It returns why the request is refused, or nil, and a function to
// call when its answer is written.
func (u *Upstream) arrive(r *http.Request) (refusal *Refusal, end func()) {
	charges := u.table.Explain(r)

	// Count and log under one lock, so that the log has the order of the arrivals.
	u.mu.Lock()
	defer u.mu.Unlock()

	// Ask all budgets, also after a refusal, so that each notes its excess. The first refusal counts.
	at := time.Now()
	arrival := Arrival{At: at, Method: r.Method, Path: r.URL.Path}
	for i := range charges {
		c := &charges[i]
		arrival.Policies = append(arrival.Policies, c.Budget.Policy)
		if why := u.judge(c, at); why != nil && refusal == nil && !u.options.Lenient {
			refusal = why
		}
	}

	end = func() {}
	if refusal != nil {
		arrival.Refused = refusal.Policy
	} else {
		end = u.count(charges, at)
	}

	u.arrivals = append(u.arrivals, arrival)
	return refusal, end
}

// judge returns why a budget refuses a request, or nil. If the request finds no room, judge notes the excess and, if Ban says so, bans
// the budget. A budget that is banned already notes nothing. A Lenient upstream bans nobody, and its caller ignores the result. The
// mutex is held.
func (u *Upstream) judge(c *store.Charge, at time.Time) *Refusal {
	b := u.budgets[c.Budget]
	if b == nil {
		b = newCounter(c.Limit, at)
		u.budgets[c.Budget] = b
	}

	why := Refusal{Policy: c.Budget.Policy, Limit: c.Limit}
	if at.Before(b.bannedUntil) {
		why.RetryAfter, why.Banned = b.bannedUntil.Sub(at), true
		return &why
	}

	wait, count, ok := b.room(at, c.Cost)
	if ok {
		return nil
	}

	u.excesses = append(u.excesses, Excess{at, c.Budget.Policy, c.Budget.String(), c.Limit, count})
	why.RetryAfter = wait
	if u.options.Ban > 0 && !u.options.Lenient {
		u.bans++
		b.bannedUntil = at.Add(u.options.Ban)
		why.RetryAfter, why.Banned = u.options.Ban, true
	}

	return &why
}

// count counts a request in its budgets, and returns a function to call when its answer is written. The mutex is held, but
// not when end is called.
func (u *Upstream) count(charges []store.Charge, at time.Time) (end func()) {
	for i := range charges {
		u.budgets[charges[i].Budget].add(at, charges[i].Cost)
	}

	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		for i := range charges {
			u.budgets[charges[i].Budget].end(charges[i].Cost)
		}
	}
}

// Arrivals returns all requests up to now, in their order.
func (u *Upstream) Arrivals() []Arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.arrivals)
}

// Excesses returns each time that a request found no room under a policy. It is empty if the
// program has kept all limits.
func (u *Upstream) Excesses() []Excess {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.excesses)
}

// Refusals returns how many requests were refused, by policy. It is empty if none was.
func (u *Upstream) Refusals() map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()

	all := make(map[string]int)
	for i := range u.arrivals {
		if by := u.arrivals[i].Refused; by != "" {
			all[by]++
		}
	}
	return all
}

// Bans returns how many bans have begun.
func (u *Upstream) Bans() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.bans
}
