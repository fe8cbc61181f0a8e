package filestore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/filestore"
	"github.com/fleetthrottle/throttle/internal/crew"
	"github.com/fleetthrottle/throttle/internal/fleet"
)

const role = "filestore"

func TestMain(m *testing.M) {
	crew.Main(role, member)
	crew.Main(markRole, markMember)
	os.Exit(m.Run())
}

// An order is what a process of a fleet is to do.
type order struct {
	Dir, URL string
	Name     string
	Workers  int
	Length   time.Duration
	N        int
	Per      time.Duration
}

// A report is what a process of a fleet has seen.
type report struct {
	Served int
	Failed string // the last error; none: ""
}

// member sends requests for as long as it was told.
func member(program *crew.Link) error {
	var o order
	if err := program.Hear(&o); err != nil {
		return err
	}
	s, err := filestore.Open(o.Dir)
	if err != nil {
		return err
	}
	transport, err := throttle.New(throttle.Config{
		Store: s, Policies: []throttle.Policy{{
			Name: "api", Limit: throttle.SlidingWindow(o.N, o.Per),
			Jitter: 500 * time.Millisecond, // the upstream is on this machine, and may be short of time itself
		}},
	})
	if err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	ctx, end := program.Alone(), time.Now().Add(o.Length)
	var served atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	client := &http.Client{Transport: transport}
	for range o.Workers {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := get(ctx, client, o); err != nil {
					failed.Store(err.Error())
					return
				}
				served.Add(1)
			}
		})
	}
	wg.Wait()
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

// An upstream counts what a fleet sends, and bans it if that is too much.
type upstream struct {
	*fleet.Upstream
	order order
}

// newUpstream returns an upstream that allows so much a second, and what its processes are to do.
func newUpstream(t *testing.T, n int, length time.Duration) *upstream {
	u := &upstream{Upstream: fleet.NewUpstream(n, time.Second, time.Minute)}
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	u.order = order{Dir: t.TempDir(), URL: server.URL, Workers: 8, Length: length, N: n, Per: time.Second}
	return u
}

// orders are those of so many processes.
func (u *upstream) orders(processes int) (all []order) {
	for i := range processes {
		o := u.order
		o.Name = strconv.Itoa(i)
		all = append(all, o)
	}
	return all
}

// muster starts processes.
func muster(t *testing.T, role string, orders ...order) crew.Members {
	all, err := crew.Muster(t.Context(), role, orders)
	require.NoError(t, err)
	t.Cleanup(all.Kill)
	return all
}

// TestP1_Fleet: four processes share a limit before an upstream that bans them for one request
// too many, and each of them has a part of it.
func TestP1_Fleet(t *testing.T) {
	u := newUpstream(t, 100, 3*time.Second)
	began := time.Now()
	members := muster(t, role, u.orders(4)...)
	for _, m := range members {
		var r report
		require.NoError(t, m.Hear(&r))
		require.Empty(t, r.Failed)
	}
	require.Zero(t, u.Bans())
	require.LessOrEqual(t, u.Worst(), 100)
	shares := u.PerWorker()
	t.Logf("%v in %v", shares, time.Since(began))
	for i := range 4 {
		require.Greater(t, shares[strconv.Itoa(i)], 10)
	}
}

// TestP11_NewsOfOthers: callers of several stores wait in one line while the budget is closed. When
// another store opens it they all start, though nobody looks.
func TestP11_NewsOfOthers(t *testing.T) {
	dir := t.TempDir()
	var limiters []*throttle.Limiter
	for range 4 {
		s, err := filestore.Open(dir)
		require.NoError(t, err)
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "one", Limit: throttle.LeakyBucket(50, time.Second)})
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	require.NoError(t, limiters[3].Pause(t.Context(), "", time.Hour))
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if _, err := limiters[i%3].Acquire(t.Context(), "", 1); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		st, err := limiters[3].Status(t.Context(), "")
		return err == nil && st.Waiting == 30
	}, time.Minute, time.Millisecond)
	require.NoError(t, limiters[3].Resume(t.Context(), ""))
	wg.Wait()
}
