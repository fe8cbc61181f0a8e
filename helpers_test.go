package throttle_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/leaks"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A base is a RoundTripper made of a function.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answer returns a base that answers every request alike.
func answer(status int, body string, header ...string) base {
	return func(r *http.Request) (*http.Response, error) {
		h := make(http.Header)
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{
			StatusCode: status, Header: h, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	}
}

// starts is a base that notes when each request came, from when it was made.
type starts struct {
	mu    sync.Mutex
	begin time.Time
	times []time.Duration
	then  base
}

func newStarts() *starts { return &starts{begin: time.Now(), then: answer(200, "")} }

func (s *starts) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.times = append(s.times, time.Since(s.begin))
	s.mu.Unlock()
	return s.then(r)
}

func (s *starts) seen() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.times...)
}

// events collects what a transport observes.
type events struct {
	mu  sync.Mutex
	all []throttle.Event
}

func (e *events) observe(_ context.Context, ev throttle.Event) {
	e.mu.Lock()
	e.all = append(e.all, ev)
	e.mu.Unlock()
}

func (e *events) told() []throttle.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

func (e *events) kinds() []throttle.EventKind {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := []throttle.EventKind{}
	for _, ev := range e.all {
		kinds = append(kinds, ev.Kind)
	}
	return kinds
}

// first returns the first event of a kind.
func (e *events) first(t *testing.T, k throttle.EventKind) throttle.Event {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == k {
			return ev
		}
	}
	require.Failf(t, "no such event", "want %v, got %v", k, e.all)
	return throttle.Event{}
}

// A watchedBody fails the test when it is read, and counts how often it is
// closed.
type responseBody struct {
	t      *testing.T
	closed atomic.Int32
}

func (b *responseBody) Read([]byte) (int, error) {
	b.t.Error("P13: the body of a request that was not sent was read")
	return 0, io.EOF
}

func (b *responseBody) Close() error {
	b.closed.Add(1)
	return nil
}

// everywhere returns the policies, of which those without a Match match every request.
func everywhere(policies ...throttle.Policy) []throttle.Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		if policies[i].Match == "" {
			policies[i].Match = "/"
		}
	}
	return policies
}

// withKeys returns a policy with a budget for each key.
func withKeys(p throttle.Policy) throttle.Policy {
	p.Keyed = true
	return p
}

// newTransport returns a transport on a memstore of its own.
func newTransport(t *testing.T, b http.RoundTripper, policies ...throttle.Policy) *throttle.Transport {
	t.Helper()
	tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: everywhere(policies...), Base: b})
	require.NoError(t, err)
	return tr
}

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	return must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// send sends one request and closes the answer.
func send(t *testing.T, tr http.RoundTripper, r *http.Request) error {
	t.Helper()
	resp, err := tr.RoundTrip(r)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	return err
}

// line sends n requests, each when the one before it is being held or is
// through, so that their order is known. It returns when all are through.
func line(t *testing.T, tr http.RoundTripper, n int, url string) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		r := get(t, url)
		all.Go(func() {
			if err := send(t, tr, r); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	all.Wait()
}

// most returns the most starts that lie in any closed interval of length per.
func most(times []time.Duration, per time.Duration) int { return stat.Most(times, per+1) }

// A spyStore notes what is asked of a store, and may interfere.
type spyStore struct {
	throttle.Store
	slow   time.Duration      // Book takes so long before the store decides
	change func(*store.Grant) // called with each grant
	pause  func(context.Context) error
	settle func(context.Context) error
	landed chan struct{} // told of each Release, if it listens

	confirm func(context.Context) (bool, error) // answers for the store

	mu       sync.Mutex
	bookings []store.Booking
	cancels  int
	releases int
	pauses   int
	settled  [][]int
	going    map[*spiedWatch]bool // the watches that go on
}

func newSpy() *spyStore {
	return &spyStore{Store: memstore.New(), going: make(map[*spiedWatch]bool)}
}

func (s *spyStore) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	w := &spiedWatch{s.Store.Watch(b, g, news), s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going[w] = true
	return w
}

type spiedWatch struct {
	store.Watch
	spy *spyStore
}

func (w *spiedWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	if w.spy.confirm != nil {
		return w.spy.confirm(ctx)
	}
	return w.Watch.Confirm(ctx, maxWait)
}

func (w *spiedWatch) Stop() {
	w.spy.mu.Lock()
	delete(w.spy.going, w)
	w.spy.mu.Unlock()
	w.Watch.Stop()
}

func (s *spyStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	s.mu.Lock()
	noted := *b
	noted.Charges = slices.Clone(b.Charges)
	s.bookings = append(s.bookings, noted)
	s.mu.Unlock()
	time.Sleep(s.slow)
	g, err := s.Store.Book(ctx, b)
	if s.change != nil {
		s.change(&g)
	}
	return g, err
}

func (s *spyStore) Cancel(b *store.Booking, g store.Grant) {
	s.mu.Lock()
	s.cancels++
	s.mu.Unlock()
	s.Store.Cancel(b, g)
}

func (s *spyStore) Release(b *store.Booking, g store.Grant) {
	s.mu.Lock()
	s.releases++
	s.mu.Unlock()
	s.Store.Release(b, g)
	select {
	case s.landed <- struct{}{}:
	default:
	}
}

// hangs only keeps a failure from lasting forever, however busy the machine is.
const hangs = time.Minute

// awaitLanded waits for the next Release.
func (s *spyStore) awaitLanded(t *testing.T) {
	t.Helper()
	select {
	case <-s.landed:
	case <-time.After(hangs):
		require.Fail(t, "what was in flight is still held")
	}
}

func (s *spyStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	s.mu.Lock()
	s.settled = append(s.settled, slices.Clone(costs))
	s.mu.Unlock()
	if s.settle != nil {
		return s.settle(ctx)
	}
	return s.Store.Settle(ctx, b, g, costs)
}

func (s *spyStore) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	s.mu.Lock()
	s.pauses++
	s.mu.Unlock()
	if s.pause != nil {
		return s.pause(ctx)
	}
	return s.Store.Pause(ctx, c, d)
}

func (s *spyStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	s.mu.Lock()
	s.pauses++
	s.mu.Unlock()
	if s.pause != nil {
		return 0, 0, s.pause(ctx)
	}
	return s.Store.Refuse(ctx, c, r)
}

func (s *spyStore) booked() []store.Booking {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bookings)
}

// charged returns the bookings but those in the place of a start that nobody used: a caller whose answer came too late books a second time, and gives the first start back.
func (s *spyStore) charged() []store.Booking {
	return slices.DeleteFunc(s.booked(), func(b store.Booking) bool { return b.Instead != store.Handle{} })
}

// cancelled returns how many places were given back.
func (s *spyStore) cancelled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancels
}

// released returns how often something in flight was ended.
func (s *spyStore) released() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releases
}

// settlements returns the costs that the store was told of later.
func (s *spyStore) settlements() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.settled)
}

// paused returns how many penalties the store was told of.
func (s *spyStore) paused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauses
}

// status describes the budget that the request would be charged to first.
func status(t *testing.T, s throttle.Store, tr *throttle.Transport, r *http.Request) throttle.Status {
	t.Helper()
	charges := tr.Explain(r)
	require.NotEmpty(t, charges)
	st, err := s.Status(t.Context(), charges[0])
	require.NoError(t, err)
	return st
}

// TestMain fails the run if a goroutine outlives the tests (P15).
func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }
