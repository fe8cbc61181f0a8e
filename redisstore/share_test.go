package redisstore_test

import (
	"math/rand/v2"
	"slices"
	"testing"
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
	eachBubble(t, soak.Most([]int{0, 1, 2, 3}, []int{0, 3}), func(t *testing.T, server *redistest.Server, i int) {
		silent, empty := i&1 > 0, i&2 > 0
		c := newSharers(t, server, 4, share, forty)
		c.pull(5, c.nodes...)
		c.until(10 * time.Second)
		away(silent, c.nodes...)
		c.until(40 * time.Second)
		if empty {
			forgets(t, server.Client(t))
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

// TestP12_ShareAlone cuts off one node of four, for as long as is promised. The
// others leave its share free.
func TestP12_ShareAlone(t *testing.T) {
	eachBubble(t, []bool{false, true}, func(t *testing.T, server *redistest.Server, silent bool) {
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

// TestP12_ShareRandom takes Redis from some nodes or all, at random, or makes it slow,
// and gives it back to one after the other, as it was or empty.
func TestP12_ShareRandom(t *testing.T) {
	eachBubble(t, seeds(soak.Most(5, 1)), func(t *testing.T, server *redistest.Server, seed uint64) {
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
				forgets(t, server.Client(t))
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

// TestP11_AShareBeginsClosed: a penalty was stored before Redis went away, and
// nobody waits for its end. Who asks for a start of the node's share gets none
// before.
func TestP11_AShareBeginsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		one := charge("one", throttle.PerSecond(40))
		node := c.nodes[0]
		require.Zero(t, book(t, node.store, one))
		time.Sleep(5 * time.Second)
		end := time.Now().Add(time.Minute)
		require.NoError(t, node.store.Pause(t.Context(), one, time.Minute))
		away(false, node)
		k := bookingFor(0, one)
		var last throttle.Grant
		var err error
		for range 30 {
			time.Sleep(time.Second)
			last, err = node.store.Book(t.Context(), k)
			require.False(t, last.OK)
		}
		require.NoError(t, err, "the node has its share by now")
		require.Equal(t, time.Until(end), last.Wait)
		require.True(t, last.Paused)
		back(node)
		c.end()
	})
}

// TestP12_UnlimitedNeedsNoShare takes Redis away from two nodes that use a limit of one,
// which cannot be shared, and unlimited budgets. Those stay open, but for the one that
// was closed before, as long as that lasts, and one that is closed meanwhile.
func TestP12_UnlimitedNeedsNoShare(t *testing.T) {
	eachBubble(t, []redisstore.Outage{redisstore.Share, redisstore.FailOpen}, func(t *testing.T, server *redistest.Server, outage redisstore.Outage) {
		c := newSharers(t, server, 2, &redisstore.Options{Outage: outage}, throttle.Policy{Name: "forty", Limit: throttle.PerSecond(40), Jitter: -1})
		s := c.nodes[0].store
		open, closed, later := free("open"), free("closed"), free("later")
		for _, m := range c.nodes {
			require.Zero(t, book(t, m.store, open))
		}
		time.Sleep(5 * time.Second) // until the others know them
		require.NoError(t, s.Pause(t.Context(), closed, time.Minute))
		end := time.Now().Add(time.Minute)
		away(false, c.nodes...)
		var g throttle.Grant
		var err error
		for range 20 {
			time.Sleep(time.Second)
			k := bookingFor(0, open)
			g, err = s.Book(t.Context(), k)
		}
		require.NoError(t, err)
		require.True(t, g.OK)
		require.Zero(t, g.Wait)
		g = refused(t, s, closed, open)
		require.True(t, g.Paused)
		require.Equal(t, time.Until(end), g.Wait)
		st := status(t, s, closed)
		require.Equal(t, throttle.Status{Limit: st.Limit, Wait: time.Until(end), Paused: time.Until(end)}, st)
		back(c.nodes...)
		for range 10 {
			time.Sleep(time.Second)
			k := bookingFor(5*time.Second, open)
			g, err = s.Book(t.Context(), k)
		}
		require.NoError(t, err)
		require.True(t, g.OK)
		require.NoError(t, s.Pause(t.Context(), later, time.Minute))
		require.Equal(t, time.Minute, book(t, s, later))
		require.Equal(t, time.Until(end), book(t, s, closed))
		c.end()
	})
}
