package redisstore_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A filling is a limit, and for how long its starts may be used: so wide are the entries.
type filling struct {
	limit  throttle.Limit
	spread time.Duration
}

// String names the test of a filling.
func (f filling) String() string { return f.limit.String() }

var fillings = []filling{
	{throttle.SlidingWindow(1_000_000, 4*time.Second), 120 * time.Millisecond},
	{throttle.SlidingWindow(1<<40, 30*24*time.Hour), 4 * time.Hour},
	{throttle.FixedWindow(1<<40, 10*24*time.Hour), 2 * time.Hour},
	{throttle.SlidingWindow(1_000_000, time.Hour), 25 * time.Second},
	{throttle.SlidingWindow(100, 30*24*time.Hour), 4 * time.Hour},
	{throttle.CalendarWindow(1<<40, throttle.Month, time.UTC), 4 * time.Hour},
	{throttle.LeakyBucket(1<<30, 4*time.Second), 0},
	{throttle.TokenBucket(1<<30, 24*time.Hour, 1<<30), time.Hour},
}

// TestP10_FullRowsWithLines: a row that is full of wide entries takes no more than 4 KB with a
// line of all priorities that has as many holes as it can, and with a long name.
func TestP10_FullRowsWithLines(t *testing.T) {
	eachBubble(t, fillings[:soak.Most(len(fillings), 3)], func(t *testing.T, server *redistest.Server, f filling) {
		client := server.Client(t)
		s := atRest(t, redisstore.NewAt(client, nil, bubbleClock))
		rng := rand.New(rand.NewPCG(10, 250))
		c := charge(strings.Repeat("x", 250), f.limit)
		n, per := f.limit.Capacity(), cmp.Or(f.limit.Per(), 30*24*time.Hour)
		c.Cost = max(1, n/240)
		for range 240 {
			k := bookingFor(0, c)
			k.Spread = f.spread - time.Duration(rng.Int64N(int64(f.spread)/8+1)).Truncate(time.Microsecond)
			ask(t, s, k)
			requireSmall(t, client)
			time.Sleep((per / 240).Truncate(time.Microsecond))
		}
		for i := range 240 { // what is left is taken, and more
			c.Cost = max(1, n/160)
			k := booking(c)
			k.Spread = f.spread - time.Duration(i)*time.Microsecond
			ask(t, s, k)
			requireSmall(t, client)
		}
		var waiters []*walker
		for p := throttle.Low; p <= throttle.High; p++ {
			for range 20 {
				c.Cost = max(1, n/8)
				waiters = append(waiters, walks(t, s, p, c))
			}
		}
		for i, w := range waiters {
			if i%2 == 1 {
				w.leaves()
			}
			requireSmall(t, client)
		}
		for i, w := range waiters {
			if i%2 == 0 {
				w.leaves()
			}
			requireSmall(t, client)
		}
	})
}

// TestP3_FullRowsAreUsed: a row that is as large as it may be, of starts that are spread in time and
// cost so much that some 250 fit, is used to the full. Each start needs its spread beside the window.
func TestP3_FullRowsAreUsed(t *testing.T) {
	windows := slices.DeleteFunc(slices.Clone(fillings), func(f filling) bool { return f.limit.Kind() != throttle.KindSlidingWindow })
	eachBubble(t, windows[:soak.Most(len(windows), 1)], func(t *testing.T, server *redistest.Server, f filling) {
		const spans, left = 5, 2 // windows, of which some fill the row
		s := atRest(t, redisstore.NewAt(server.Client(t), nil, bubbleClock))
		rng := rand.New(rand.NewPCG(3, 250))
		c := charge("full", f.limit)
		c.Cost = max(1, f.limit.N()/250)
		begin, starts, per := time.Now(), 0, f.limit.Per()
		for i := 0; time.Since(begin) < spans*per; {
			k := bookingFor(0, c)
			k.Spread = f.spread - time.Duration(rng.Int64N(int64(f.spread)/8+1)).Truncate(time.Microsecond)
			g := ask(t, s, k)
			if !g.OK {
				time.Sleep(max(g.Wait, time.Microsecond))
				continue
			}
			if time.Since(begin) >= left*per {
				starts++
			}
			i++ // the next comes when it is due, unless it is late
			time.Sleep(time.Until(begin.Add(per * time.Duration(i) / time.Duration(f.limit.N()/c.Cost))).Truncate(time.Microsecond))
		}
		used := float64(starts*c.Cost) / float64(f.limit.N()) / (spans - left)
		require.GreaterOrEqual(t, used, 0.99*float64(per)/float64(per+f.spread))
	})
}
