package fleet

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A strict upstream answers one request with a penalty, and that before it with a
// shorter one, but later. It notes when requests come.
type strict struct {
	at     int                       // which one
	before func()                    // called when that comes
	no     func(http.ResponseWriter) // answers it
	epoch  time.Time

	mu       sync.Mutex
	arrivals []Arrival
	answers  time.Duration // when it began to answer it
	answered chan struct{} // closed when it had
	done     time.Duration // and when that was
}

func newStrict(at int, before func(), no func(http.ResponseWriter)) *strict {
	return &strict{at: at, before: before, no: no, epoch: time.Now(), answered: make(chan struct{})}
}

// ServeHTTP implements http.Handler.
func (u *strict) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Since(u.epoch)
	u.mu.Lock()
	u.arrivals = append(u.arrivals, Arrival{At: at, Worker: r.Header.Get(WorkerHeader)})
	n := len(u.arrivals)
	u.mu.Unlock()
	switch n {
	case u.at - 1:
		<-u.answered
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case u.at:
		u.before()
		u.mu.Lock()
		defer u.mu.Unlock()
		u.answers = time.Since(u.epoch)
		u.no(w)
		_ = http.NewResponseController(w).Flush() // a connection that is gone is seen by its request
		u.done = time.Since(u.epoch)
		close(u.answered)
	}
}

// tooMany is a refusal that says for how long.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "2")
	w.WriteHeader(http.StatusTooManyRequests)
}

// deny is DingTalk's ban, which looks like success.
func deny(w http.ResponseWriter) {
	_, _ = io.WriteString(w, denial)
}

const denial = `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"5ea8d1f0"}`

// penalty is how long both close the budget. DingTalk's takes five minutes.
const penalty = 2 * time.Second

// banned is throttle's transport, which knows both.
func banned(m Member) (http.RoundTripper, error) {
	p := m.policy()
	p.Answer = func(resp *http.Response) throttle.Answer {
		if b, err := feedback.PeekBody(resp, 4096); err == nil && strings.Contains(string(b), `"punish":"deny"`) {
			return throttle.Refused(penalty)
		}
		return throttle.RetryAfter(resp)
	}
	return throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   recorder{redisstore.New(m.Redis, redisstore.Options{})}, Policies: []throttle.Policy{p}, Base: m.Base, Observe: m.events.observe,
	})
}

// TestP11_AnswersStopAFleet lets three processes have sleepers up to three seconds
// ahead when one of their answers carries a penalty.
func TestP11_AnswersStopAFleet(t *testing.T) {
	soak.Only(t)
	for name, no := range map[string]func(http.ResponseWriter){"429": tooMany, "DingTalk's ban": deny} {
		for how, cut := range map[string]bool{"": false, ", subscribers cut just before": true} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				server := redistest.Single(t)
				client := server.Client(t)
				up := newStrict(100, func() { // so many that all programs have begun
					if cut {
						_ = client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err()
					}
				}, no)
				upstream := Serve(up, 0)
				defer upstream.Close()
				c := Config{Name: "banned", Limiter: "banned", Redis: server.URL(), Limit: "20/s",
					Processes: 3, Workers: 20, Load: 15 * time.Second}
				still := watchStalls(t)
				_, results, err := orders{Config: c, URL: upstream.URL}.muster(t.Context())
				stall := still()
				require.NoError(t, err)
				up.check(t, results, stall)
			})
		}
	}
}

// check requires that nothing arrived in the penalty, that something would have, and
// that all were served after it.
func (u *strict) check(t *testing.T, results []result, stall time.Duration) {
	t.Helper()
	from, end := u.done+50*ms, u.answers+penalty
	var last, first time.Duration
	served := map[string]bool{}
	for _, a := range u.arrivals {
		require.False(t, a.At > from+stall && a.At < end, "%s arrived %v after the answer", a.Worker, a.At-u.done)
		switch {
		case a.At < end:
			last = max(last, a.At)
		case first == 0:
			first = a.At
			fallthrough
		default:
			served[a.Worker] = true
		}
	}
	t.Logf("longest stall %v; answered after %v, the last one came %v later, the next one %v", stall, u.done, last-u.done, first-u.done)
	require.Less(t, first, end+time.Second, "the budget opens")
	require.Len(t, served, 60, "everybody is served after the end")

	told, sleepers := time.Duration(u.epoch.UnixNano())+u.done, map[string]int{}
	for _, r := range results {
		for _, s := range r.Samples {
			if s.Asked < told && s.Served > told {
				process, _, _ := strings.Cut(s.Worker, "/")
				sleepers[process]++
			}
		}
	}
	require.Len(t, sleepers, 3, "each process had some sleepers")
	for process, n := range sleepers {
		require.Greater(t, n, 5, "process %s", process)
	}
}

// testLimiters are those of the test bed. Files that need a kind of system add theirs.
var testLimiters = map[string]Limiter{"naive": naive, "banned": banned}

func TestMain(m *testing.M) {
	Main(testLimiters)
	os.Exit(m.Run())
}

// A bucket is a token bucket, the limiter that the test bed must catch.
type bucket struct {
	mu    sync.Mutex
	every time.Duration
	burst time.Duration // of time that may be saved up
	next  time.Time     // when the bucket is full of nothing
}

func newBucket(n int, per time.Duration, burst int) *bucket {
	every := per / time.Duration(n)
	return &bucket{every: every, burst: every * time.Duration(burst)}
}

// wait takes a token, and waits until it is there. A wait that ctx ends gives nothing back.
func (b *bucket) wait(ctx context.Context) error {
	b.mu.Lock()
	now := time.Now()
	if oldest := now.Add(-b.burst); b.next.Before(oldest) {
		b.next = oldest
	}
	b.next = b.next.Add(b.every)
	d := b.next.Sub(now)
	b.mu.Unlock()
	return sleep(ctx, d)
}

// naive gives each member its part of the limit and a bucket that holds the
// limit of a whole window, as a fleet without a store would.
func naive(m Member) (http.RoundTripper, error) {
	n := m.Limit.N() / m.Config.Processes
	b := newBucket(n, m.Limit.Per(), n)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := b.wait(r.Context()); err != nil {
			return nil, err
		}
		return m.Base.RoundTrip(r)
	}), nil
}

// A bed that lets anything pass proves nothing: it must ban a naive fleet, see
// each of its arrivals and count too many of them in a second.
func TestRunCatchesANaiveFleet(t *testing.T) {
	soak.Only(t)
	r, err := Run(t.Context(), Config{
		Name: "naive", Limiter: "naive", Limit: "40/s",
		Processes: 2, Workers: 24, Load: 1500 * ms, Ban: 5 * time.Second,
	})
	require.NoError(t, err)
	t.Log("\n" + Header() + "\n" + r.String())
	require.Equal(t, 1, r.Bans)
	require.Greater(t, r.ArrivalsWorst, 40)
	require.Greater(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Arrivals, r.Starts)
	require.LessOrEqual(t, r.Refused, r.Arrivals-40)
}

// A spy is a Store that tells each caller's first grant, a start or a place in line,
// and which start was booked last.
type spy struct {
	throttle.Store
	booked chan store.Grant
	last   *atomic.Pointer[store.Grant]
}

// spyOn returns a spy that can tell of n grants before somebody listens.
func spyOn(s throttle.Store, n int) spy {
	return spy{s, make(chan store.Grant, n), new(atomic.Pointer[store.Grant])}
}

// Book books, and tells the grant if it is the caller's first.
func (s spy) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, err := s.Store.Book(ctx, b)
	if err == nil && g.OK {
		s.last.Store(&g)
	}
	if err == nil && !b.Returns && (g.OK || g.Ready != nil) {
		s.booked <- g
	}
	return g, err
}

// queue receives n grants. It returns the last start among those that had not
// to wait, and the longest wait of the others.
func (s spy) queue(n int) (started int64, longest time.Duration) {
	for range n {
		g := <-s.booked
		if g.OK && g.Wait == 0 {
			started = max(started, g.Handle.Start)
		}
		longest = max(longest, g.Wait)
	}
	return started, longest
}

// Key "a" has a queue of ten seconds, and shares a budget with key "b". Half of
// that budget is free, and key "b" has it at once, though the queue is older.
func TestP5_WideBudget(t *testing.T) {
	store := spyOn(redisstore.New(redistest.Single(t).Client(t), redisstore.Options{}), 100)
	transport, err := throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   store,
		Policies: []throttle.Policy{
			{Name: "key", Match: "/", Key: throttle.Header(KeyHeader), Limit: throttle.PerSecond(5), Jitter: -1},
			{Name: "wide", Match: "/", Limit: throttle.PerSecond(10), Jitter: -1},
		},
		Base: roundTripper(answer),
	})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	call := func(key string) {
		callers.Go(func() {
			// Those that wait in the end are told to leave: any error is right.
			_ = orders{}.send(ctx, &http.Client{Transport: transport}, Sample{Key: key})
		})
	}
	begin := time.Now()
	for range 51 {
		call("a")
	}
	_, queue := store.queue(51)
	require.Greater(t, queue, 9900*ms-time.Since(begin), "the first one cannot have started before them all")
	for range 5 {
		call("b")
		require.Zero(t, (<-store.booked).Wait)
	}
	leave()
	callers.Wait()
}

// A queue of 200 seconds leaves. Nothing of it stays booked: the next
// caller waits at most for the requests that really started.
func TestP7_CancelledWaiters(t *testing.T) {
	const waiters = 1000
	store := spyOn(redisstore.New(redistest.Single(t).Client(t), redisstore.Options{}), waiters+1)
	l, err := throttle.NewLimiter(store, throttle.Policy{Name: "queue", Limit: throttle.PerSecond(5), Jitter: -1})
	require.NoError(t, err)

	ctx, leave := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	begin := time.Now()
	for range waiters {
		callers.Go(func() {
			// The first few succeed, the others are told to leave.
			_, _ = l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		})
	}
	started, queue := store.queue(waiters)
	require.Greater(t, queue, 190*time.Second-time.Since(begin))
	leave()
	callers.Wait()

	// A store that is busy is told of some of them in the background.
	status, err := l.Status(t.Context(), "")
	for err == nil && status.Waiting > 0 {
		status, err = l.Status(t.Context(), "")
	}
	require.NoError(t, err)
	_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	next := store.last.Load()
	t.Logf("a queue of %v left; the next starts %d µs after the last that started, in %v", queue, next.Handle.Start-started, next.Wait)
	// Measured from start to start by the store's clock. A caller that need
	// not wait at all may come any time later.
	if next.Wait > 0 {
		require.LessOrEqual(t, next.Handle.Start-started, time.Second.Microseconds()+1)
	}
}
