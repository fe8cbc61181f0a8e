package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestShares plays testdata/shares. Its moves: "pull 5 a b" lets five callers each of nodes pull, "end a"
// ends them; "away a" takes the server from nodes, "silent a" has it say nothing, "back a" gives it back; "share
// x" has them pull the budget x; "rate 1s 9s 11 12" wants 11 or 12 starts in each second from 1 s to
// 9 s; "groups a 0" wants that a node uses so many groups.
func TestShares(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	text, err := os.ReadFile("testdata/shares/shares.txt")
	require.NoError(t, err)
	storetest.RunVectors(t, "shares.txt", string(text), func(t *testing.T) storetest.Fleet {
		c := newSharers(t, server, 4, share, throttle.Policy{Name: "twelve", Limit: store.PerSecond(12), Jitter: -1})
		t.Cleanup(func() {
			c.end()
			if c.policy.Limit.Kind() == store.KindSlidingWindow {
				c.never()
			}
		})
		nodes := func(m storetest.Move) (all []*sharer) {
			for _, name := range m.Words {
				all = append(all, c.nodes[strings.Index("abcd", name)])
			}
			return all
		}
		return storetest.Fleet{
			Program: func(string) store.Store { return c.nodes[0].store },
			Moves: map[string]func(storetest.Move){
				"pull":   func(m storetest.Move) { c.pull(int(m.Times[0]), nodes(m)...) },
				"end":    func(m storetest.Move) { nodes(m)[0].stop() },
				"away":   func(m storetest.Move) { away(false, nodes(m)...) },
				"silent": func(m storetest.Move) { away(true, nodes(m)...) },
				"back":   func(m storetest.Move) { back(nodes(m)...) },
				"forget": func(storetest.Move) { forgets(t, server.Client(t)) },
				"share":  func(m storetest.Move) { c.policy.Limit = m.Charges[0].Limit },
				"groups": func(m storetest.Move) { require.Equal(t, int(m.Times[0]), nodes(m)[0].store.Groups(), m.Place) },
				"rate": func(m storetest.Move) {
					for from := m.Times[0]; from < m.Times[1]; from += time.Second {
						n := time.Duration(c.between(from, from+time.Second))
						require.GreaterOrEqual(t, n, m.Times[2], "%sfrom %v on", m.Place, from)
						require.LessOrEqual(t, n, m.Times[len(m.Times)-1], "%sfrom %v on", m.Place, from)
					}
				},
			},
		}
	})
}

var share = redisstore.Options{Outage: redisstore.OutageSplit}

// forty is what four nodes can divide without a rest.
var forty = throttle.Policy{Name: "forty", Limit: store.PerSecond(40), Jitter: -1}

// TestP12_ShareRandom takes Redis from some nodes or all, at random, or makes it slow,
// and gives it back to one after the other, as it was or empty.
func TestP12_ShareRandom(t *testing.T) {
	eachBubble(t, seeds(soak.Seeds(5, 1)), func(t *testing.T, server *redistest.Server, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		// A start may be confirmed a little late: that is what Jitter is for.
		late := throttle.Policy{Name: "late", Limit: store.PerSecond(40)}
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
		one := charge("one", store.PerSecond(40))
		node := c.nodes[0]
		require.Zero(t, book(t, node.store, one))
		time.Sleep(5 * time.Second)
		end := time.Now().Add(time.Minute)
		require.NoError(t, node.store.Pause(t.Context(), one, time.Minute))
		away(false, node)
		k := bookingFor(0, one)
		var last store.Grant
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
	eachBubble(t, []redisstore.Outage{redisstore.OutageSplit, redisstore.OutageFailOpen}, func(t *testing.T, server *redistest.Server, outage redisstore.Outage) {
		c := newSharers(t, server, 2, redisstore.Options{Outage: outage}, throttle.Policy{Name: "forty", Limit: store.PerSecond(40), Jitter: -1})
		s := c.nodes[0].store
		open, closed, later := free("open"), free("closed"), free("later")
		for _, m := range c.nodes {
			require.Zero(t, book(t, m.store, open))
		}
		time.Sleep(5 * time.Second) // until the others know them
		require.NoError(t, s.Pause(t.Context(), closed, time.Minute))
		end := time.Now().Add(time.Minute)
		away(false, c.nodes...)
		var g store.Grant
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
		require.Equal(t, store.Status{Limit: st.Limit, Wait: time.Until(end), Paused: time.Until(end)}, st)
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

// TestP11_SharesAreClosedByPenalties pauses the budget before an outage, and once
// more during it.
func TestP11_SharesAreClosedByPenalties(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 4, share, forty)
		c.pull(5, c.nodes...)
		c.until(10 * time.Second)
		l := limiter(t, c.nodes[0].store, c.policy)
		require.NoError(t, l.Pause(c.ctx, "", 20*time.Second))
		c.until(12 * time.Second)
		away(false, c.nodes...)
		c.until(50 * time.Second)
		// Who stood in line in Redis waits for a start of its node's share: those
		// begin slowly, each by itself.
		c.everySecond(10*time.Second, 30*time.Second, 0, 0)
		c.everySecond(30*time.Second, 32*time.Second, 4, 20)
		c.everySecond(33*time.Second, 50*time.Second, 40, 40)

		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, l.Pause(ctx, "", 10*time.Second), context.DeadlineExceeded)
		c.until(60 * time.Second)
		c.everySecond(52*time.Second, 60*time.Second, 30, 30)

		var told error
		st, err := l.Status(outage.WithObserver(c.ctx, func(err error) { told = err }), "")
		require.NoError(t, err)
		require.Equal(t, store.PerSecond(10), st.Limit, "the node's share")
		require.Error(t, told, "it is not Redis that has said so")
		back(c.nodes...)
		c.end()
		c.never()
	})
}

// TestP11_OpenObeysAPauseOfSlots: a program that met a closed Concurrency limit in an answer, and did not hear the message, obeys the pause when
// Redis has gone away.
func TestP11_OpenObeysAPauseOfSlots(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, redisstore.Options{Outage: redisstore.OutageFailOpen}, forty)
		s, one := c.nodes[0].store, charge("one", store.Concurrency(1))
		other, _ := loaded(t, server.Client(t), nil)
		require.NoError(t, other.Pause(t.Context(), one, time.Hour))
		require.True(t, refused(t, s, one).Paused)
		away(false, c.nodes...)
		for range 20 {
			time.Sleep(time.Second)
			g, err := s.Book(t.Context(), bookingFor(0, one))
			require.False(t, err == nil && g.OK, "it is closed for an hour")
		}
		require.True(t, refused(t, s, one).Paused)
		back(c.nodes...)
		c.end()
	})
}

// TestP15_SharingEnds: a store that nobody uses makes no call, and keeps nothing.
func TestP15_SharingEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		node := c.nodes[0]
		book(t, node.store, charge("one", store.PerSecond(1)))
		require.Equal(t, 1, node.store.Groups())
		time.Sleep(12 * time.Second)
		require.Equal(t, 0, node.store.Groups())
		node.way.names()
		time.Sleep(time.Hour)
		require.Empty(t, node.way.names())
	})
}

// TestP12_Open lets everything pass while Redis is away, but for what a penalty
// closes.
func TestP12_Open(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		open := redisstore.Options{Outage: redisstore.OutageFailOpen}
		c := newSharers(t, server, 1, open, throttle.Policy{Name: "slow", Limit: store.PerHour(1)})
		l := limiter(t, c.nodes[0].store, c.policy)
		acquire := func(n int, within time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(c.ctx, within)
			defer cancel()
			for range n {
				_, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
				require.NoError(t, err)
			}
		}
		acquire(1, time.Second)
		away(false, c.nodes...)
		acquire(1000, 3*time.Second)
		start := time.Now()
		acquire(1000, time.Second)
		require.Zero(t, time.Since(start))

		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		defer cancel()
		require.Error(t, l.Pause(ctx, "", time.Minute))
		_, err := l.Acquire(throttle.WithMaxWait(c.ctx, throttle.NoWait), "", 1)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)
		time.Sleep(time.Minute)
		acquire(100, time.Second)

		back(c.nodes...)
		time.Sleep(3 * time.Second)
		_, err = l.Acquire(throttle.WithMaxWait(c.ctx, throttle.NoWait), "", 1)
		require.ErrorIs(t, err, throttle.ErrLimited, "Redis was told")
		time.Sleep(time.Hour)
		acquire(1, time.Second)
		atRest(t, c.nodes[0].store)
	})
}

// TestP12_ShareOfThoseInLine: a node whose callers stand in line counts as one that uses
// the budget, however long they make no call. So it has its share when Redis goes away.
func TestP12_ShareOfThoseInLine(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, throttle.Policy{Name: "four", Limit: store.PerMinute(4), Jitter: -1})
		node := c.nodes[0]
		l := limiter(t, node.store, c.policy)
		for range 4 {
			_, err := l.Acquire(throttle.WithMaxWait(c.ctx, throttle.Forever), "", 1)
			require.NoError(t, err)
		}
		waiter := acquire(c.ctx, l)
		c.until(40 * time.Second)
		require.Equal(t, 1, node.store.Standing())
		require.Equal(t, 1, node.store.Groups())
		away(false, node)
		require.NoError(t, (<-waiter).err)
		require.InDelta(t, 106, time.Since(c.began).Seconds(), 1, "a window after Redis was given up")
		back(node)
		c.end()
	})
}

// TestP12_ShareAfterStartsFarAhead: a share begins a window after the last start that was
// booked in Redis, however far ahead that is.
func TestP12_ShareAfterStartsFarAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		node, one := c.nodes[0], charge("one", store.PerSecond(1))
		for range 21 {
			book(t, node.store, one)
		}
		c.until(4 * time.Second)
		away(false, node)
		wait := book(t, node.store, one)
		require.GreaterOrEqual(t, time.Since(c.began)+wait, 26*time.Second, "20 s, 5 s and a window")
		require.Less(t, time.Since(c.began)+wait, 28*time.Second)
		wait = book(t, node.store, one)
		require.Less(t, time.Since(c.began)+wait, 29*time.Second, "it stays open")
		back(node)
		c.end()
	})
}

// TestP12_AnObserverOfAShareKnows that Redis is away, though the share lets callers start.
func TestP12_AnObserverOfAShareKnows(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, share, forty)
		var asks atomic.Value
		all, err := throttle.NewLimiters(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   c.nodes[0].store, Policies: []throttle.Policy{forty},
			Observe: func(ctx context.Context, e throttle.Event) {
				if e.Kind == throttle.EventStoreFailed {
					asks.CompareAndSwap(nil, outage.QuestionOf(ctx))
				}
			},
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(c.ctx)
		var caller sync.WaitGroup
		caller.Go(func() {
			for ctx.Err() == nil {
				_, _ = all.Acquire(ctx, throttle.Demand{Policy: forty.Name})
				time.Sleep(100 * time.Millisecond)
			}
		})
		answers := func() error {
			ctx, stop := context.WithTimeout(c.ctx, time.Second)
			defer stop()
			_, err := all.Statuses(ctx)
			if q, ok := asks.Load().(outage.Question); ok {
				require.Equal(t, err == nil, q.Ask(ctx) == nil)
			}
			return err
		}
		c.until(10 * time.Second)
		require.NoError(t, answers())
		require.Nil(t, asks.Load())
		away(false, c.nodes...)
		for at := 20 * time.Second; at < time.Minute; at += time.Second {
			c.until(at)
			require.Error(t, answers())
			require.NotNil(t, asks.Load())
		}
		back(c.nodes...)
		c.until(70 * time.Second)
		require.NoError(t, answers())
		stop()
		caller.Wait()
		c.end()
	})
}

// alone returns limiters of one policy, "model", on an empty server, their store, and a context that ends with the test, before the bubble does.
func alone(t *testing.T, server *redistest.Server, limit store.Limit) (context.Context, *redisstore.Store, *throttle.Limiters) {
	t.Helper()
	forgets(t, server.Client(t))
	s := atRest(t, redisstore.NewAt(roomy(t, server), redisstore.Options{}, bubbleClock))
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: []throttle.Policy{{Name: "model", Limit: limit}}})
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		synctest.Wait()
	})
	return ctx, s, l
}

// stand lets so many callers of each share acquire a start, by turns, until the test ends, and returns a function that reads the shares.
func stand(t *testing.T, server *redistest.Server, shares, each int) func() []store.ShareStatus {
	t.Helper()
	ctx, _, l := alone(t, server, store.PerSecond(100))
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
	defer redisstore.MistakenScript(t, "lined <= LOW_LINED", "lined <= 600")()
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

// TestP5_AsManySharesAsATableSays: a line with the callers of 100 shares fits its row: it is never lost, and begun anew, while
// they are served.
func TestP5_AsManySharesAsATableSays(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		stand(t, server, 100, 8)
		keepsItsLine(t, server.Client(t), 8, 900*time.Millisecond, 8<<10)
	})
}

// TestP5_ALineOfTokens: a line of callers with costs of thousands, and more shares than lanes, is never lost either: its lanes take more bytes.
func TestP5_ALineOfTokens(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		ctx, _, l := alone(t, server, store.PerMinute(600_000))
		for i := range 400 {
			go func() {
				d := throttle.Demand{Policy: "model", Share: fmt.Sprint("tenant ", i%200), Cost: 1000 + i*37%30_000, Weight: 1 + i%3}
				for {
					if _, err := l.Acquire(ctx, d); err != nil {
						return
					}
				}
			}()
		}
		keepsItsLine(t, server.Client(t), 40, 5*time.Second, 24<<10)
	})
}

// keepsItsLine looks at the only budget again and again, and requires that the row has at most that many bytes, and always the same line. The text
// of a line with shares begins with a list of 7 or 8, true, and the line's number.
func keepsItsLine(t *testing.T, client *redis.Client, looks int, pause time.Duration, most int64) {
	var first string
	for range looks {
		time.Sleep(pause)
		var ids []string
		for _, key := range client.Keys(t.Context(), "*").Val() {
			require.LessOrEqual(t, client.MemoryUsage(t.Context(), key).Val(), most)
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
	soak.WithoutRace(t)
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

// TestP10_KnownSharesAreForgotten: of more shares than a row has tags for, those that are long served do not keep their tags while the line lasts.
// Otherwise each share that comes later would take turns with a different share, as one.
func TestP10_KnownSharesAreForgotten(t *testing.T) {
	soak.WithoutRace(t)
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		ctx, s, l := alone(t, server, store.PerSecond(1000))
		client := server.Client(t)
		acquire := func(share string) error {
			_, err := l.Acquire(ctx, throttle.Demand{Policy: "model", Share: share})
			return err
		}
		for i := range 1500 {
			go func() {
				for acquire(fmt.Sprint("busy ", i%3)) == nil {
				}
			}()
		}
		size := func() int64 { return client.StrLen(t.Context(), s.Key(store.BudgetOf("model", ""))).Val() }
		serve := func(tenants int) {
			var all sync.WaitGroup
			for range tenants {
				all.Go(func() { _ = acquire(fmt.Sprint(rand.Int64())) })
			}
			all.Wait()
		}

		serve(3000)
		full := size()
		time.Sleep(5 * time.Second)
		serve(300)
		require.Less(t, size(), full-4096, "%d bytes before", full)
	})
}
