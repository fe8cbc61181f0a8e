package fleet

import (
	"context"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

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
