//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
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
	"github.com/fleetthrottle/throttle/pgstore"
)

const (
	fleetRole = "pgstore fleet"
	holdRole  = "pgstore holder"
)

func TestMain(m *testing.M) {
	crew.Main(fleetRole, member)
	crew.Main(holdRole, holder)
	os.Exit(m.Run())
}

// An order is what a process of a fleet is to do.
type order struct {
	Database, URL string
	Name          string
	Workers       int
	N             int
	Per           time.Duration
}

// A report is what a process of a fleet has seen.
type report struct {
	Served int
	Failed string // the last error; none: ""
}

// member sends requests until it is told to stop, or is alone.
func member(program *crew.Link) error {
	var o order
	if err := program.Hear(&o); err != nil {
		return err
	}
	s, err := pgstore.Open(o.Database, withLease)
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
	ctx := context.Background()
	var stopped atomic.Bool
	go func() {
		var stop string
		_ = program.Hear(&stop) // either way it is to stop
		stopped.Store(true)
	}()
	var served atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	client := &http.Client{Transport: transport}
	for range o.Workers {
		wg.Go(func() {
			for !stopped.Load() {
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

// TestP1_Fleet: six processes share a limit before an upstream that bans them for one request too many. One is killed and
// one stands still for a while, wherever they are; the others go on when its lease is over, and each has a part of the limit.
func TestP1_Fleet(t *testing.T) {
	const allowed = 100
	server := newServer(t)
	u := fleet.NewUpstream(allowed, time.Second, time.Minute)
	api := httptest.NewServer(u)
	t.Cleanup(api.Close)
	var orders []order
	for i := range 6 {
		orders = append(orders, order{
			Database: server.URL(), URL: api.URL, Name: strconv.Itoa(i), Workers: 8, N: allowed, Per: time.Second,
		})
	}
	members, err := crew.Muster(t.Context(), fleetRole, orders)
	require.NoError(t, err)
	t.Cleanup(members.Kill)
	count := func(i int) int { return u.PerWorker()[strconv.Itoa(i)] }
	more := func(message string, all ...int) {
		before := u.PerWorker()
		require.Eventually(t, func() bool {
			return !slices.ContainsFunc(all, func(i int) bool { return count(i) <= before[strconv.Itoa(i)]+10 })
		}, time.Minute, time.Millisecond, message)
	}
	more("they begin", 0, 1, 2, 3, 4, 5)
	require.NoError(t, members[4].Signal(syscall.SIGSTOP))
	members[5].Kill()
	more("the others go on", 0, 1, 2, 3)
	require.NoError(t, members[4].Signal(syscall.SIGCONT))
	more("it goes on", 0, 1, 2, 3, 4)
	for _, m := range members[:5] {
		require.NoError(t, m.Tell("stop"))
	}
	for _, m := range members[:5] {
		var r report
		require.NoError(t, m.Hear(&r))
		require.Empty(t, r.Failed)
	}
	t.Log(u.PerWorker())
	require.Zero(t, u.Bans())
	require.LessOrEqual(t, u.Worst(), allowed)
}

// holding is the slot that a process holds that is killed.
var holding = throttle.Charge{Budget: throttle.Budget{Policy: "one at a time", Key: [16]byte{3}}, Limit: throttle.Concurrency(1), Cost: 1}

// holder holds a slot until it is killed.
func holder(program *crew.Link) error {
	var url string
	if err := program.Hear(&url); err != nil {
		return err
	}
	s, err := pgstore.Open(url, withLease)
	if err != nil {
		return err
	}
	ctx := program.Alone()
	switch g, err := s.Book(ctx, &throttle.Booking{Charges: []throttle.Charge{holding}}); {
	case err != nil:
		return err
	case !g.OK:
		return errors.New("the slot is taken")
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// withLease has programs count as dead soon.
var withLease = &pgstore.Options{}

func init() { withLease.Rows.Lease = time.Second }

// TestP7_DeadProcess: what a killed process held is free when its lease is over, and who waits for it is told.
func TestP7_DeadProcess(t *testing.T) {
	server := newServer(t)
	members, err := crew.Muster(t.Context(), holdRole, []string{server.URL()})
	require.NoError(t, err)
	t.Cleanup(members.Kill)
	s, err := pgstore.Open(server.URL(), withLease)
	require.NoError(t, err)
	b := throttle.Booking{Charges: []throttle.Charge{holding}, MaxWait: time.Minute}
	g, err := s.Book(t.Context(), &b)
	require.NoError(t, err)
	require.False(t, g.OK)
	require.NotNil(t, g.Ready)
	// The process lives longer than its lease: it renews it.
	select {
	case <-g.Ready:
		t.Fatal("the process holds the slot")
	case <-time.After(2 * withLease.Rows.Lease):
	}
	members.Kill()
	for !g.OK {
		<-g.Ready
		b.Instead, b.Turn = g.Handle, g.Turn
		g, err = s.Book(t.Context(), &b)
		require.NoError(t, err)
	}
	s.Release(&b, g)
}
