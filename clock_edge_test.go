package throttle_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// An upstreamCount counts starts as an upstream does, whose clock has nanoseconds, and reports whether one fits.
type upstreamCount func(at time.Time) bool

// spacing counts starts that have at least per/n between them.
func spacing(n int, per time.Duration) upstreamCount {
	var last time.Time
	return func(at time.Time) bool {
		fits := last.IsZero() || int64(at.Sub(last))*int64(n) >= int64(per)
		last = at
		return fits
	}
}

// bucketOf counts starts that take a token each from a bucket of burst tokens, which is full at first.
func bucketOf(n int, per time.Duration, burst int) upstreamCount {
	var last time.Time
	full := int64(burst) * int64(per) // a token is as much as per
	level := full
	return func(at time.Time) bool {
		if !last.IsZero() {
			level = min(full, level+int64(at.Sub(last))*int64(n))
		}
		last = at
		level -= int64(per)
		return level >= 0
	}
}

// window counts starts of which no closed interval of length per holds more than n.
func window(n int, per time.Duration) upstreamCount {
	starts := make([]time.Time, n)
	i := 0
	return func(at time.Time) bool {
		fits := starts[i].IsZero() || at.Sub(starts[i]) > per
		starts[i] = at
		i = (i + 1) % n
		return fits
	}
}

// TestP1_NoJitterByTheNanosecond: stores count in microseconds, and an upstream may count more finely. Without Jitter no start is
// early by a part of a microsecond, whenever callers come.
func TestP1_NoJitterByTheNanosecond(t *testing.T) {
	tests := []struct {
		limit throttle.Limit
		count upstreamCount
	}{
		{throttle.LeakyBucket(5, time.Second), spacing(5, time.Second)},
		{throttle.LeakyBucket(3, time.Second), spacing(3, time.Second)},
		{throttle.LeakyBucket(7000, time.Second), spacing(7000, time.Second)},
		{throttle.LeakyBucket(7, 1234567*time.Nanosecond), spacing(7, 1234567*time.Nanosecond)},
		{throttle.TokenBucket(5, time.Second, 1), bucketOf(5, time.Second, 1)},
		{throttle.TokenBucket(3, time.Second, 4), bucketOf(3, time.Second, 4)},
		{throttle.TokenBucket(7000, time.Second, 2), bucketOf(7000, time.Second, 2)},
		{throttle.TokenBucket(7, 1234567*time.Nanosecond, 3), bucketOf(7, 1234567*time.Nanosecond, 3)},
		{throttle.SlidingWindow(5, time.Second), window(5, time.Second)},
		{throttle.SlidingWindow(3, 1234567*time.Nanosecond), window(3, 1234567*time.Nanosecond)},
	}
	for i, test := range tests {
		t.Run(test.limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, memstore.New(), throttle.Policy{Name: "p", Limit: test.limit, Jitter: -1})
				var mu sync.Mutex
				early, begun := 0, time.Now()
				var callers sync.WaitGroup
				for c := range 3 {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					mean := 3 * test.limit.Per() / time.Duration(test.limit.N())
					callers.Go(func() {
						for range soak.Most(200_000, 3_000) {
							time.Sleep(time.Duration(r.Int64N(int64(2*mean))) + time.Duration(r.IntN(1000)))
							_, err := l.Acquire(t.Context(), "", 1)
							require.NoError(t, err)
							mu.Lock()
							if !test.count(time.Now()) {
								early++
							}
							mu.Unlock()
						}
					})
				}
				callers.Wait()
				require.Zero(t, early, "starts in %v that were early", time.Since(begun))
			})
		})
	}
}
