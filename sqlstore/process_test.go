//go:build unix

package sqlstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/crew"
	"github.com/fleetthrottle/throttle/internal/fleet"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/sqlstore"
)

const role = "sqlstore"

// An order is what a process of a fleet is to do.
type order struct {
	DSN, URL string
	Name     string
	Workers  int
	N        int // a second
	Slots    int // how many requests may be in flight; 0: as many as there are workers
}

// A report is what a process of a fleet has seen.
type report struct {
	Served int
	Failed string // the last error; none: ""
}

// short is a lease that lets tests see the end of it soon.
var short = &rowstore.Options{Lease: 2 * time.Second}

// member sends requests until it is told to stop, or is alone.
func member(program *crew.Link) error {
	var o order
	if err := program.Hear(&o); err != nil {
		return err
	}
	db, err := openDB(o.DSN)
	if err != nil {
		return err
	}
	policies := []throttle.Policy{{
		Name: "api", Limit: throttle.SlidingWindow(o.N, time.Second),
		Jitter: 500 * time.Millisecond, // the upstream is on this machine, and may be short of time itself
	}}
	if o.Slots > 0 {
		policies = append(policies, throttle.Policy{Name: "slots", Limit: throttle.Concurrency(o.Slots)})
	}
	transport, err := throttle.New(throttle.Config{Store: sqlstore.MySQL(db, short), Policies: policies})
	if err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	var stopped atomic.Bool
	go func() {
		var stop string
		_ = program.Hear(&stop) // either way it is to stop
		stopped.Store(true)
	}()
	ctx := context.Background()
	var served atomic.Int64
	var failed atomic.Value
	var all sync.WaitGroup
	client := &http.Client{Transport: transport}
	for range o.Workers {
		all.Go(func() {
			for !stopped.Load() {
				if err := get(ctx, client, o); err != nil {
					failed.Store(err.Error())
					return
				}
				served.Add(1)
			}
		})
	}
	all.Wait()
	r := report{Served: int(served.Load())}
	r.Failed, _ = failed.Load().(string)
	return program.Tell(r)
}

// get sends one request.
func get(ctx context.Context, client *http.Client, o order) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL, nil)
	if err != nil {
		return err
	}
	req.Header.Set(fleet.WorkerHeader, o.Name)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// orders are those of so many processes before an upstream.
func orders(t *testing.T, dsn string, processes int, upstream http.Handler, o order) (all []order) {
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	o.DSN, o.URL = dsn, server.URL
	for i := range processes {
		o.Name = strconv.Itoa(i)
		all = append(all, o)
	}
	return all
}

// muster starts processes.
func muster(t *testing.T, orders []order) crew.Members {
	all, err := crew.Muster(t.Context(), role, orders)
	require.NoError(t, err)
	t.Cleanup(all.Kill)
	return all
}

// TestP1_Fleet: four processes share a limit before an upstream that bans them for one request too many. One is
// stopped for a while, and one is killed. Each has a part of the limit.
func TestP1_Fleet(t *testing.T) {
	t.Parallel()
	const n = 100
	upstream := fleet.NewUpstream(n, time.Second, time.Minute)
	members := muster(t, orders(t, table(t), 4, upstream, order{Workers: 8, N: n}))
	count := func(i int) int { return upstream.PerWorker()[strconv.Itoa(i)] }
	require.Eventually(t, func() bool { return count(0) > 10 && count(1) > 10 }, time.Minute, time.Millisecond)
	require.NoError(t, members[0].Signal(syscall.SIGSTOP))
	members[1].Kill()
	before := count(2)
	require.Eventually(t, func() bool { return count(2) > before+20 }, time.Minute, time.Millisecond, "others go on")
	require.NoError(t, members[0].Signal(syscall.SIGCONT))
	before = count(0)
	require.Eventually(t, func() bool { return count(0) > before+10 && count(3) > 10 }, time.Minute, time.Millisecond, "it goes on")
	for _, i := range []int{0, 2, 3} {
		require.NoError(t, members[i].Tell("stop"))
	}
	for _, i := range []int{0, 2, 3} {
		var r report
		require.NoError(t, members[i].Hear(&r))
		require.Empty(t, r.Failed)
	}
	t.Logf("%v", upstream.PerWorker())
	require.Zero(t, upstream.Bans())
	require.LessOrEqual(t, upstream.Worst(), n)
}

// TestP4_LeasesOfDeadProcesses: what a process holds in flight is free when it has been dead for as long as its lease.
func TestP4_LeasesOfDeadProcesses(t *testing.T) {
	t.Parallel()
	arrived, leave := make(chan struct{}, 3), make(chan struct{})
	dsn := table(t)
	upstream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(leave) })
	holder := muster(t, orders(t, dsn, 1, upstream, order{Workers: 3, N: 1000, Slots: 3}))[0]
	for range 3 {
		<-arrived
	}
	waits, err := throttle.NewLimiter(sqlstore.MySQL(open(t, dsn), short), throttle.Policy{Name: "slots", Limit: throttle.Concurrency(3)})
	require.NoError(t, err)
	st, err := waits.Status(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 3, st.Used)
	got := make(chan error, 1)
	began := time.Now()
	go func() {
		p, err := waits.Acquire(t.Context(), "", 3)
		if err == nil {
			p.Release()
		}
		got <- err
	}()
	require.Eventually(t, func() bool {
		st, err := waits.Status(t.Context(), "")
		return err == nil && st.Waiting == 3 // the cost of who waits
	}, time.Minute, time.Millisecond)
	holder.Kill()
	require.NoError(t, <-got)
	require.Greater(t, time.Since(began), short.Lease/2, "the process was believed to live")
}

// TestP11_NewsOfOthers: callers of several stores wait in one line while the budget is closed. When another store
// opens it they all start, though nobody tells their stores at once.
func TestP11_NewsOfOthers(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	var limiters []*throttle.Limiter
	for range 4 {
		l, err := throttle.NewLimiter(sqlstore.MySQL(open(t, dsn), nil), throttle.Policy{Name: "one", Limit: throttle.LeakyBucket(50, time.Second)})
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	require.NoError(t, limiters[3].Pause(t.Context(), "", time.Hour))
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			if _, err := limiters[i%3].Acquire(t.Context(), "", 1); err != nil {
				t.Error(err)
			}
		})
	}
	awaitWaiting(t, limiters[3], 30)
	require.NoError(t, limiters[3].Resume(t.Context(), ""))
	all.Wait()
}

// TestP11_PenaltyToSleepers: a caller sleeps until the start that was booked for it, and another store is told of a
// penalty. The caller does not start before that is over.
func TestP11_PenaltyToSleepers(t *testing.T) {
	t.Parallel()
	const penalty = 3 * time.Second
	dsn := table(t)
	var limiters []*throttle.Limiter
	for range 2 {
		l, err := throttle.NewLimiter(sqlstore.MySQL(open(t, dsn), nil), throttle.Policy{Name: "one", Limit: throttle.LeakyBucket(1, 2*time.Second)})
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	_, err := limiters[0].Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	started := make(chan time.Time, 1)
	go func() {
		_, err := limiters[0].Acquire(t.Context(), "", 1)
		if err != nil {
			t.Error(err)
		}
		started <- time.Now()
	}()
	awaitWaiting(t, limiters[1], 1)
	began := time.Now()
	require.NoError(t, limiters[1].Pause(t.Context(), "", penalty))
	require.GreaterOrEqual(t, (<-started).Sub(began), penalty)
}

// TestP7_CancelledCrowd: callers of two stores that leave have neither a place nor a start.
func TestP7_CancelledCrowd(t *testing.T) {
	t.Parallel()
	const n = 200
	dsn := table(t)
	var limiters []*throttle.Limiter
	for range 2 {
		l, err := throttle.NewLimiter(sqlstore.MySQL(open(t, dsn), nil), throttle.Policy{Name: "one", Limit: throttle.PerHour(1)})
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	_, err := limiters[0].Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := limiters[i%2].Acquire(ctx, "", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	awaitWaiting(t, limiters[0], n)
	leave()
	all.Wait()
	awaitWaiting(t, limiters[1], 0)
	st, err := limiters[1].Status(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 1, st.Used)
}

func awaitWaiting(t *testing.T, l *throttle.Limiter, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, err := l.Status(t.Context(), "")
		return err == nil && st.Waiting == n
	}, time.Minute, time.Millisecond)
}
