package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// stand lets so many callers of each share acquire a start, by turns, until the test ends, and returns a function that reads the shares.
func stand(t *testing.T, server *redistest.Server, shares, each int) func() []store.ShareStatus {
	t.Helper()
	forgets(t, server.Client(t))
	s := atRest(t, redisstore.NewAt(roomy(t, server), redisstore.Options{}, bubbleClock))
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: []throttle.Policy{
		{Name: "model", Limit: store.PerSecond(100)},
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		synctest.Wait()
	})
	for i := range shares * each {
		go func() {
			_, _ = l.Acquire(ctx, throttle.Demand{Policy: "model", Share: fmt.Sprint("tenant ", i%shares), Weight: 1 + i%shares%2})
		}()
	}
	return func() []store.ShareStatus {
		t.Helper()
		all, err := l.Statuses(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1)
		return slices.Collect(maps.Values(all))[0].Shares
	}
}

// TestStatusTellsShares: by the names that [store.ShareOf] finds, with their weights, what waits and what was served; nothing when nobody
// waits any more.
func TestStatusTellsShares(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		shares := stand(t, server, 2, 300)
		time.Sleep(4 * time.Second)
		all := shares()
		require.Len(t, all, 2)
		for i := range 2 {
			s, id := store.ShareStatus{}, store.ShareOf("model", fmt.Sprint("tenant ", i))
			for _, other := range all {
				if other.ID == id {
					s = other
				}
			}
			require.Equal(t, 1+i, s.Weight)
			require.Positive(t, s.Waiting)
			require.Positive(t, s.Served)
		}
		time.Sleep(time.Minute)
		require.Nil(t, shares())
	})
}

// TestStatusSaysWhatHasNoRoom: where a row has no room for what its shares were served, it says so, and tells all that wait.
func TestStatusSaysWhatHasNoRoom(t *testing.T) {
	server := redistest.Shared(t)
	defer redisstore.MistakenScript(t, "#text <= MAX_SHARED", "#text <= 1100")()
	defer redisstore.MistakenScript(t, "lined <= LEAST_LINED", "lined <= 600")()
	synctest.Test(t, func(t *testing.T) {
		shares := stand(t, server, 40, 16) // after 1.5 s some 200 have started, and no share has no caller left
		time.Sleep(1500 * time.Millisecond)
		all := shares()
		require.Len(t, all, 40)
		for _, s := range all {
			require.Positive(t, s.Waiting)
			require.Equal(t, -1, s.Served)
		}
	})
}

// TestP5_AsManySharesAsATableSays: a line with the callers of 125 shares fits its row: it is never lost, and begun anew, while
// they are served. The text of a line begins with a list of 7 or 8, true, and the line's number.
func TestP5_AsManySharesAsATableSays(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		stand(t, server, 125, 8)
		client := server.Client(t)
		var first string
		for range 8 {
			time.Sleep(900 * time.Millisecond)
			var ids []string
			for _, key := range client.Keys(t.Context(), "*").Val() {
				require.LessOrEqual(t, client.MemoryUsage(t.Context(), key).Val(), int64(8<<10))
				row := client.Get(t.Context(), key).Val()
				for i := range len(row) - 11 {
					if (row[i] == 0x97 || row[i] == 0x98) && row[i+1:i+3] == "\xc3\xcf" {
						ids = append(ids, fmt.Sprintf("%x", row[i+3:i+11]))
					}
				}
			}
			require.Len(t, ids, 1)
			if first == "" {
				first = ids[0]
			}
			require.Equal(t, first, ids[0])
		}
	})
}

// TestP6_SharesWithTheSameTag: a caller is told how long it waits for the callers of other shares that had as much as its own, and whose
// turns come first because they came first.
func TestP6_SharesWithTheSameTag(t *testing.T) {
	onEmpty(t, func(t *testing.T, _ *redis.Client, s *redisstore.Store) {
		of := func(share uint64, maxWait time.Duration) *store.Booking {
			b := bookingFor(maxWait, charge("model", store.PerSecond(100)))
			b.Charges[0].Share, b.Horizon = store.Share{ID: share, Weight: 1}, 250*time.Millisecond
			return b
		}
		for range 100 {
			require.True(t, ask(t, s, of(2, 0)).OK)
		}
		var waits []store.Grant
		for share := range uint64(100) {
			waits = append(waits, ask(t, s, of(1000+share, -1)))
		}
		require.False(t, waits[99].OK)
		g := ask(t, s, of(5000, 1700*time.Millisecond))
		require.False(t, g.OK, "a window, and a second for a hundred others")
		require.Nil(t, g.Ready, "it waits for nothing: it is refused")
		require.NotNil(t, ask(t, s, of(5000, 2200*time.Millisecond)).Ready)
	})
}

// TestStatusAddsPriorities: a share that waits in several priorities is told once, and callers without a share are told beside shares only.
func TestStatusAddsPriorities(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s := atRest(t, redisstore.NewAt(roomy(t, server), redisstore.Options{}, bubbleClock))
		l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: []throttle.Policy{
			{Name: "model", Limit: store.PerHour(1)},
		}})
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), throttle.Demand{Policy: "model"})
		require.NoError(t, err)
		shared, leave := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		for _, c := range []struct {
			ctx      context.Context
			priority store.Priority
			demand   throttle.Demand
		}{
			{shared, store.PriorityLow, throttle.Demand{Share: "acme", Weight: 2, Cost: 1}},
			{shared, store.PriorityHigh, throttle.Demand{Share: "acme", Weight: 3, Cost: 1}},
			{shared, store.PriorityNormal, throttle.Demand{Share: "acme", Cost: 1}},
			{shared, store.PriorityNormal, throttle.Demand{Share: "other", Cost: 1}},
			{ctx, store.PriorityNormal, throttle.Demand{Cost: 1}},
		} {
			c.demand.Policy = "model"
			go func() { _, _ = l.Acquire(throttle.WithPriority(c.ctx, c.priority), c.demand) }()
			time.Sleep(time.Second)
		}
		shares := func() []store.ShareStatus {
			all, err := l.Statuses(ctx)
			require.NoError(t, err)
			return slices.Collect(maps.Values(all))[0].Shares
		}
		acme, other := store.ShareOf("model", "acme"), store.ShareOf("model", "other")
		require.ElementsMatch(t, []store.ShareStatus{
			{Share: store.Share{ID: acme, Weight: 3}, Waiting: 3},
			{Share: store.Share{ID: other, Weight: 1}, Waiting: 1},
			{Share: store.Share{Weight: 1}, Waiting: 1},
		}, shares())
		leave()
		time.Sleep(time.Second)
		require.Nil(t, shares())
		stop()
		time.Sleep(time.Second)
	})
}

// TestStatusTakesBack: a start that its caller gives back, and does not want again, was not served.
func TestStatusTakesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		st := atRest(t, redisstore.NewAt(roomy(t, server), redisstore.Options{}, bubbleClock))
		book := func(share uint64, turn store.Turn) (*store.Booking, store.Grant) {
			c := charge("model", store.PerSecond(1))
			c.Share = store.Share{ID: share, Weight: 1}
			b := &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait, Horizon: 250 * time.Millisecond, Turn: turn, Returns: turn != nil}
			g, err := st.Book(t.Context(), b)
			require.NoError(t, err)
			return b, g
		}
		served := func(share uint64) int {
			for _, s := range status(t, st, charge("model", store.PerSecond(1))).Shares {
				if s.ID == share {
					return s.Served
				}
			}
			return -2
		}
		_, g := book(5, nil)
		require.True(t, g.OK)
		_, first := book(5, nil)
		for _, share := range []uint64{6, 5, 6} {
			_, g := book(share, nil)
			require.NotNil(t, g.Ready)
		}
		require.Zero(t, served(5))
		<-first.Ready
		b, g := book(5, first.Turn)
		require.True(t, g.OK)
		require.Positive(t, g.Wait)
		require.Equal(t, 1, served(5))
		st.Cancel(b, g)
		require.Eventually(t, func() bool { return served(5) == 0 }, time.Second, time.Millisecond)
	})
}

// TestP10_SharesBeyondThoseWithALane: a budget for which the callers of 1,500 shares wait takes a bounded row, and tells those beyond the lanes
// together.
func TestP10_SharesBeyondThoseWithALane(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		shares := stand(t, server, 1500, 2)
		client := server.Client(t)
		for range 4 {
			time.Sleep(900 * time.Millisecond)
			for _, key := range client.Keys(t.Context(), "*").Val() {
				require.LessOrEqual(t, client.MemoryUsage(t.Context(), key).Val(), int64(20<<10))
			}
		}

		common := 0
		for _, s := range shares() {
			if s.ID == 1 {
				common = s.Waiting
			}
		}
		require.Greater(t, common, 2000)
	})
}
