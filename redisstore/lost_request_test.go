package redisstore_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
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
	t.Parallel()
	onLoss(t, func(w *wire, lose, late func()) {
		l, err := throttle.NewLimiter(w.store, throttle.Policy{Name: "five", Limit: throttle.PerHour(5)})
		require.NoError(w, err)
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
		_, err = l.TryAcquire(w.Context(), "key", 1)
		require.ErrorIs(w, err, throttle.ErrLimited)
		charged(5)
	})
}

// TestP8_LostInATransport loses a call for a request with two policies. It is
// sent once and charged once under both.
func TestP8_LostInATransport(t *testing.T) {
	t.Parallel()
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
			st, err := w.direct.Status(w.Context(), c)
			require.NoError(w, err)
			require.Equal(w, 3, st.Used+st.Waiting, c.Budget.Policy)
		}
	})
}

// TestP11_LostPause loses the call that closes a budget. It is closed.
func TestP11_LostPause(t *testing.T) {
	t.Parallel()
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
