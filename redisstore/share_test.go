package redisstore_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

var share = &redisstore.Options{Outage: redisstore.Share}

// forty is what four nodes can divide without a rest.
var forty = throttle.Policy{Name: "forty", Limit: throttle.PerSecond(40), Jitter: -1}

// TestP12_ShareWhileRedisIsAway takes Redis from a whole fleet for half a minute,
// and gives it back as it was, or empty. Share uses the limit to the full.
func TestP12_ShareWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for i := range 4 {
		silent, empty := i&1 > 0, i&2 > 0
		synctest.Test(t, func(t *testing.T) {
			c := newSharers(t, server, 4, share, forty)
			c.pull(5, c.nodes...)
			c.until(10 * time.Second)
			away(silent, c.nodes...)
			c.until(40 * time.Second)
			if empty {
				require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
			}
			back(c.nodes...)
			c.until(60 * time.Second)
			c.end()
			c.never()
			c.everySecond(0, 10*time.Second, 40, 40)
			c.everySecond(10*time.Second, 15*time.Second, 0, 0)
			c.everySecond(17*time.Second, 40*time.Second, 40, 40)
			c.everySecond(43*time.Second, 60*time.Second, 40, 40)
		})
	}
}

// TestP12_ShareAlone cuts off one node of four, for as long as is promised. The
// others leave its share free.
func TestP12_ShareAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newSharers(t, server, 4, share, forty)
			c.pull(5, c.nodes...)
			c.until(10 * time.Second)
			away(silent, c.nodes[0])
			c.until(28 * time.Second)
			back(c.nodes[0])
			c.until(40 * time.Second)
			c.end()
			c.never()
			c.everySecond(14*time.Second, 16*time.Second, 30, 30)
			c.everySecond(17*time.Second, 28*time.Second, 40, 40)
			c.everySecond(31*time.Second, 40*time.Second, 40, 40)
		})
	}
}

// TestP12_ShareRandom takes Redis from some nodes or all, at random, or makes it slow,
// and gives it back to one after the other, as it was or empty.
func TestP12_ShareRandom(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(5, 1)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			// A start may be confirmed a little late: that is what Jitter is for.
			late := throttle.Policy{Name: "late", Limit: throttle.PerSecond(40)}
			c := newSharers(t, server, 2+r.IntN(5), share, late)
			c.pull(1+r.IntN(12), c.nodes...)
			for range 6 {
				time.Sleep(8*time.Second + time.Duration(r.Int64N(int64(4*time.Second))))
				hit := slices.Clone(c.nodes)
				r.Shuffle(len(hit), func(i, j int) { hit[i], hit[j] = hit[j], hit[i] })
				all := r.IntN(2) == 0
				if !all {
					hit = hit[:1+r.IntN(len(hit)-1)]
				}
				kind := r.IntN(3)
				if kind < 2 {
					away(kind == 0, hit...)
				} else {
					slowly(time.Duration(r.Int64N(int64(3*time.Second))), hit...)
				}
				time.Sleep(time.Duration(r.Int64N(int64(15 * time.Second))))
				if all && kind < 2 && r.IntN(2) == 0 {
					// What each started last before, nobody else may know.
					time.Sleep(time.Second)
					require.NoError(t, server.Client(t).FlushDB(t.Context()).Err())
				}
				for _, m := range hit {
					back(m)
					time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
				}
			}
			c.end()
			most, at := c.worst(time.Second)
			require.LessOrEqual(t, most, 40, "seed %d, at %v", seed, at)
		})
	}
}
