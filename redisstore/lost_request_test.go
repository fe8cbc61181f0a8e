package redisstore_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// An upstream counts requests and answers them.
type upstream struct{ requests int }

func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	u.requests++
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// TestP8_LostInALimiter loses a call of Acquire in every way. One start is
// charged, and the caller knows nothing of it.
func TestP8_LostInALimiter(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		l := limiter(w, w.store, throttle.Policy{Name: "five", Limit: throttle.PerHour(5)})
		charged := func(want int) {
			w.Helper()
			w.quiet()
			st, err := l.Status(w.Context(), "key")
			require.NoError(w, err)
			require.Equal(w, want, st.Used+st.Waiting)
		}
		acquire := func() {
			w.Helper()
			_, err := l.Acquire(w.Context(), "key", 1)
			require.NoError(w, err)
		}
		acquire()
		lose()
		acquire()
		charged(2)
		late()
		charged(2)
		for range 3 {
			acquire()
		}
		_, err := l.TryAcquire(w.Context(), "key", 1)
		require.ErrorIs(w, err, throttle.ErrLimited)
		charged(5)
	})
}

// TestP8_LostInATransport loses a call for a request with two policies. It is
// sent once and charged once under both.
func TestP8_LostInATransport(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		policies := []throttle.Policy{
			{Name: "five", Limit: throttle.PerHour(5)},
			{Name: "path", Match: "example.com/", Key: throttle.Path, Limit: throttle.PerHour(3)},
		}
		u := &upstream{}
		tr, err := throttle.New(throttle.Config{Store: w.store, Policies: policies, Base: u, MaxWait: 30 * time.Second})
		require.NoError(w, err)
		send := func() error {
			req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://example.com/a", nil)
			require.NoError(w, err)
			resp, err := tr.RoundTrip(req)
			if err != nil {
				return err
			}
			return resp.Body.Close()
		}
		require.NoError(w, send())
		lose()
		require.NoError(w, send())
		late()
		require.NoError(w, send())
		require.ErrorIs(w, send(), throttle.ErrLimited)
		require.Equal(w, 3, u.requests)

		req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://example.com/a", nil)
		require.NoError(w, err)
		for _, c := range tr.Explain(req) {
			require.Equal(w, 3, booked(w.T, w.direct, c), c.Budget.Policy)
		}
	})
}

// TestP11_LostPause loses the call that closes a budget. It is closed.
func TestP11_LostPause(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		w.now(w.store)
		lose()
		require.NoError(w, w.store.Pause(w.Context(), w.five, time.Hour))
		late()
		require.Greater(w, book(w.T, w.direct, w.five), 59*time.Minute)
	})
}

// TestP8_NodesAreNotMistaken lets two stores, whose calls are counted alike, lose
// answers in turn. The answer of one is never taken for the other's.
func TestP8_NodesAreNotMistaken(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	budget := charge("budget", throttle.PerHour(60))
	stores := []*redisstore.Store{
		redisstore.New(proxy.Client(t), nil), redisstore.New(proxy.Client(t), nil), redisstore.New(proxy.Client(t), nil),
	}
	book(t, stores[0], inGroup("other", charge("other", throttle.PerHour(1)))) // loads the script
	marks := make(map[int64]int)
	for i := range 60 {
		if i%5 > 0 {
			proxy.Disturb(redistest.CutAfter)
		}
		g, err := stores[i%len(stores)].Book(t.Context(), booking(budget))
		require.NoError(t, err)
		require.True(t, g.OK)
		require.Zero(t, g.Wait, "start %d", i)
		marks[g.Handle.Start]++
	}
	require.Positive(t, book(t, stores[0], budget))
	require.Greater(t, len(marks), 1)
	requireSmall(t, server.Client(t))
}

// TestP8_LostBatch loses the answer of a call that serves many callers. Each gets
// a start of its own, without a gap, and each is charged once.
func TestP8_LostBatch(t *testing.T) {
	const callers = 50
	server := redistest.Shared(t)
	proxy := redistest.NewProxy(t, server)
	each(t, []redistest.How{redistest.CutBefore, redistest.CutAfter}, func(t *testing.T, how redistest.How) {
		synctest.Test(t, func(t *testing.T) {
			s, tap := loaded(t, proxy.Client(t), isScript)
			paced := charge("paced", throttle.LeakyBucket(1, time.Second))
			hourly := charge("hourly", throttle.PerHour(1000))
			var all []**outcome // the first is on its way, the others share the next call
			for range 1 + callers {
				all = append(all, bookAside(t.Context(), s, booking(paced, hourly)))
			}
			f := proxy.Disturb(how)
			close(tap.pass)
			f.Await(t)
			time.Sleep(time.Second) // the store may pause before it repeats
			synctest.Wait()
			starts := make(map[time.Duration]bool)
			for _, got := range all {
				require.NoError(t, (*got).err)
				starts[time.Duration((*got).grant.Handle.Start-(*all[0]).grant.Handle.Start)*time.Microsecond] = true
			}
			for i := range 1 + callers {
				require.True(t, starts[time.Duration(i)*time.Second], "nobody starts at %d s", i)
			}
			require.Equal(t, 1+callers, booked(t, s, hourly))
		})
	})
}

// TestP8_CrowdAfterLosses lets many callers come at once while answers are lost
// in every way.
func TestP8_CrowdAfterLosses(t *testing.T) {
	t.Parallel()
	const callers = 50
	for name, change := range clients {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, change)
			w.five.Limit = throttle.PerHour(callers)
			var late []*redistest.Fault
			for _, how := range hows {
				f := w.proxy.Disturb(how)
				if how == redistest.HoldCall || how == redistest.HoldReply {
					late = append(late, f)
				}
			}
			waits := make(chan time.Duration)
			for range callers {
				go func() {
					g, err := w.store.Book(t.Context(), booking(w.five))
					if err != nil || !g.OK {
						g.Wait = throttle.Never
					}
					waits <- g.Wait
				}()
			}
			for range callers {
				require.Zero(t, <-waits)
			}
			w.charged(callers)
			// There may have been fewer calls than losses.
			for range hows {
				book(t, w.store, inGroup("other", charge("other", throttle.PerHour(1))))
			}
			for _, f := range late {
				f.Pass(t)
			}
			w.charged(callers)
			w.room(0)
		})
	}
}
