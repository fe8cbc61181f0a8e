//go:build unix

package processes

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// muster starts processes with the order o before an upstream. Each has its number as its name, and the store's lease if o
// has none. muster returns when all are ready, and fails the test otherwise. They end with the test.
func (s *Store) muster(t *testing.T, processes int, upstream http.Handler, o order) crew.Members {
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	o.URL = server.URL
	o.Lease = cmp.Or(o.Lease, s.Lease)
	var all []order
	for i := range processes {
		o.Name = strconv.Itoa(i)
		all = append(all, o)
	}
	members, err := crew.Muster(t.Context(), s.Role, all)
	require.NoError(t, err)
	t.Cleanup(members.Kill)
	return members
}

// fleet is P1 of a fleet: six processes share a limit before an upstream that bans them for one start too many. One is killed
// and one stands still for a while, wherever they are. The others go on, and each has a part of the limit.
//
// The upstream counts a request at its start, and not at its arrival: a process may be stopped after its last check, and its
// request arrives only when the process goes on. docs/reference/guarantees.md has that among the ends of P2.
func (s *Store) fleet(t *testing.T, place string) {
	const allowed = 100
	u := fleet.NewUpstream(allowed, time.Second, time.Minute)
	members := s.muster(t, 6, u, order{Place: place, Workers: 8, N: allowed})

	// more waits until each of some processes has sent ten more requests. A ban, or the end of a process, fails the test.
	more := func(message string, all ...int) {
		t.Helper()
		before := u.PerWorker()
		goesOn := func(i int) bool { return u.PerWorker()[strconv.Itoa(i)] > before[strconv.Itoa(i)]+10 }
		for _, i := range all {
			require.Eventually(t, func() bool { return goesOn(i) || members[i].IsGone() || u.Bans() > 0 }, time.Minute, time.Millisecond, message)
			require.Zero(t, u.Bans(), message)
			if members[i].IsGone() {
				require.Fail(t, message, "process %d has ended: %s", i, members[i].Errors())
			}
		}
	}

	// All work; one stops, one dies; the stopped process goes on.
	more("they begin", 0, 1, 2, 3, 4, 5)
	require.NoError(t, members[4].Pause())
	members[5].Kill()
	more("the others go on", 0, 1, 2, 3)
	require.NoError(t, members[4].Continue())
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

// deadProcess is P4 of the slots that a process holds: they count for longer than a lease while the process lives. When
// the process has been dead for as long as its lease they are free, and a caller that waits for them is told.
func (s *Store) deadProcess(t *testing.T, place string) {
	arrived, leave := make(chan struct{}, slotsHeld), make(chan struct{})
	upstream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})

	t.Cleanup(func() { close(leave) })
	holder := s.muster(t, 1, upstream, order{Place: place, Workers: slotsHeld, N: 1000, Slots: slotsHeld})[0]

	// All slots are in use.
	for range slotsHeld {
		<-arrived
	}

	// A living process keeps its slots beyond its lease.
	got := s.slotWaiter(t, place, s.Lease)
	select {
	case err := <-got:
		t.Fatal("the process was believed to be dead:", err)
	case <-time.After(2 * s.Lease):
	}

	holder.Kill()
	require.NoError(t, <-got)
}

// deadHolder is P7 of the slots of a dead process: a caller that waits gets them long before the process's lease is over.
func (s *Store) deadHolder(t *testing.T, place string) {
	arrived := make(chan struct{}, slotsHeld)
	holder := s.muster(t, 1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}), order{Place: place, Lease: time.Hour, Workers: slotsHeld, N: 1000, Slots: slotsHeld})[0]
	for range slotsHeld {
		<-arrived
	}

	got := s.slotWaiter(t, place, time.Hour)
	select {
	case err := <-got:
		t.Fatal("the process was believed to be dead:", err)
	case <-time.After(2 * time.Second): // until the processes know each other
	}

	holder.Kill()
	require.NoError(t, <-got)
}

// slotsHeld is how many slots a process has that others wait for.
const slotsHeld = 3

// slotWaiter begins to wait for all slots in this process, with a store that has this lease. Another process must hold all slots,
// or the test fails. The channel gets the error of the wait, or nil after this process got the slots and released them.
func (s *Store) slotWaiter(t *testing.T, place string, lease time.Duration) <-chan error {
	limiter, err := throttle.NewLimiter(s.open(t, place, lease), throttle.Policy{Name: slots, Limit: throttle.Concurrency(slotsHeld)})
	require.NoError(t, err)

	// The other process must hold all slots, or the caller below would not wait.
	st, err := limiter.Status(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, slotsHeld, st.Used)

	got := make(chan error, 1)
	go func() {
		p, err := limiter.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", slotsHeld)
		if err == nil {
			p.Release()
		}
		got <- err
	}()

	return got
}
