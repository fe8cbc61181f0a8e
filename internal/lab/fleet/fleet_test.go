package fleet

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP2_Arrivals: an upstream that counts arrivals sees at most 40 in any second and never bans, though each request takes
// 0 to 30 ms to arrive. No machine can stand still in virtual time, so nothing is allowed for that.
func TestP2_Arrivals(t *testing.T) {
	const n, workers, load = 40, 16, 5 * time.Minute
	for seed := range uint64(soak.Seeds(20, 4)) {
		synctest.Test(t, func(t *testing.T) {
			upstream := NewUpstream(n, time.Second, 5*time.Second)
			base := &way{upstream: upstream, random: rand.New(rand.NewPCG(seed, 2))}
			transport, err := throttle.New(throttle.Config{
				MaxWait: throttle.Forever,
				Store:   memstore.New(), Base: base,
				Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(n)}},
			})
			require.NoError(t, err)

			began := time.Now()
			var running sync.WaitGroup
			for range workers {
				running.Go(func() {
					for time.Since(began) < load {
						r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
						require.NoError(t, err)
						answer, err := transport.RoundTrip(r)
						require.NoError(t, err)
						_ = answer.Body.Close()
					}
				})
			}
			running.Wait()

			require.Zero(t, upstream.Bans())
			require.LessOrEqual(t, upstream.Worst(), n)
			require.GreaterOrEqual(t, upstream.Useful(began.Add(time.Second), began.Add(load)), 0.95)
		})
	}
}

// A way leads to an upstream, and takes each request 0 to 30 ms.
type way struct {
	upstream http.Handler

	mu     sync.Mutex
	random *rand.Rand
}

// RoundTrip has the upstream answer after the way there.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	delay := time.Duration(w.random.Int64N(int64(30*ms) + 1))
	w.mu.Unlock()
	time.Sleep(delay)

	answer := httptest.NewRecorder()
	w.upstream.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// standstills are how the machine stood still during a run.
type standstills struct {
	longest time.Duration
	lost    time.Duration // the sum of those that were longer than a request may be on its way
}

// lostOf returns which part of a load was lost to them.
func (s standstills) lostOf(load time.Duration) float64 { return float64(s.lost) / float64(load) }

// run lets a fleet of 4 processes go for 40 a second. It returns also how the machine stood still meanwhile.
func run(t *testing.T, c Config) (Report, standstills) {
	t.Helper()
	c.Redis, c.Limit = redistest.Single(t).URL(), "40/s"
	c.Processes = 4

	var still standstills
	stop := WatchStalls(0, func(s Stall) {
		still.longest = max(still.longest, s.Length())
		if s.Length() > onTheWay {
			still.lost += s.Length()
		}
	})
	r, err := Run(t.Context(), c)
	stop()

	require.NoError(t, err)
	t.Logf("longest stall %v, %v lost\n%s\n%s", still.longest, still.lost, Header(), r)
	return r, still
}

// watchStalls measures the longest stall until the returned function is called.
func watchStalls(t *testing.T) func() time.Duration {
	t.Helper()
	var longest time.Duration
	stop := WatchStalls(0, func(s Stall) { longest = max(longest, s.Length()) })
	return func() time.Duration { stop(); return longest }
}

// onTheWay is what a grant leaves of its jitter for the way to the upstream.
const onTheWay = 10 * ms

// checkArrivals checks what the upstream counted. If the machine stood still for
// longer than the way may take, what arrived meanwhile was stamped when it went
// on, and as many may have been counted in a wrong window.
func checkArrivals(t *testing.T, r Report, stall time.Duration) {
	t.Helper()
	require.LessOrEqual(t, r.Worst, 40, "by the store's clock")
	if stall <= onTheWay {
		require.Zero(t, r.Bans)
		require.LessOrEqual(t, r.ArrivalsWorst, 40)
		return
	}
	require.LessOrEqual(t, r.ArrivalsWorst, 40+1+int(40*stall/time.Second), "after a stall of %v", stall)
}

// The upstream counts arrivals, up to 30 ms after their grants, and bans. A quiet
// machine uses more than 96 % of the quota (docs/reference/measurements.md). Grants that a
// stall makes too old cost quota, so the test asks for less than the figure, and for nothing of the time that was lost.
func TestP2_BanningUpstream(t *testing.T) {
	const load = 12 * time.Second
	r, still := run(t, Config{Name: "banning", Workers: 16, Load: load, Delay: 30 * ms, Ban: 5 * time.Second})
	checkArrivals(t, r, still.longest)
	if r.Bans == 0 {
		require.GreaterOrEqual(t, r.Useful, 0.80-still.lostOf(load))
	}
}

// Nearly every request has to dial and to shake hands first, and that takes
// many times longer than a grant may be old.
func TestP2_SlowHandshakes(t *testing.T) {
	soak.Only(t)
	const load = 12 * time.Second
	r, still := run(t, Config{Name: "handshakes", Workers: 16, Load: load, Handshake: 300 * ms, Ban: 5 * time.Second})
	checkArrivals(t, r, still.longest)
	if r.Bans == 0 {
		require.GreaterOrEqual(t, r.Useful, 0.70-still.lostOf(load))
	}
}

// Without jitter the store's clock alone counts, and the limit is used up. All
// workers begin at once, so they come back in bunches of 40: the hardest case
// for a window, where no order among those that come together is fair or unfair.
// A caller that waits longer than starts are booked ahead makes one call to join the
// line and one to come, both shared by many. Once it is busy the limit leaves evenly, so the
// last of the first bunch waits a window longer than without that.
func TestP1_StoreClock(t *testing.T) {
	soak.Only(t)
	const load = 10 * time.Second
	r, still := run(t, Config{Name: "store clock", Workers: 16, Load: load, Jitter: -1})
	require.LessOrEqual(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Used, 0.97-still.lostOf(load))
	require.LessOrEqual(t, r.Trips, 1.9)
	require.Zero(t, r.Overtaken)
	require.LessOrEqual(t, r.Longest, 3100*ms+max(still.longest, still.lost))
}

// With two windows' worth of workers, first come, first served means that each
// is served in every other window, wherever it runs.
func TestP5_FirstComeFirstServed(t *testing.T) {
	soak.Only(t)
	const load = 10 * time.Second
	r, still := run(t, Config{Name: "first come", Limiter: "acquire", Workers: 20, Load: load, Jitter: -1})
	require.Zero(t, r.Overtaken)
	require.LessOrEqual(t, r.Worst, 40)
	require.GreaterOrEqual(t, r.Jain, 0.98)
	require.GreaterOrEqual(t, r.Used, 0.97-still.lostOf(load))
	require.LessOrEqual(t, r.Longest, 3100*ms+max(still.longest, still.lost))
}
