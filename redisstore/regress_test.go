package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// longer is by how much keys outlive those of production in virtual time.
const longer = time.Minute

// pass lets time pass for the keys, too: those that expire in production are
// deleted.
func pass(t *testing.T, c *redis.Client, d time.Duration, keys ...string) {
	t.Helper()
	for _, key := range keys {
		left := lifetime(t, c, key)
		require.Positive(t, left)
		if left-d > longer {
			require.NoError(t, c.PExpire(t.Context(), key, left-d).Err())
		} else {
			require.NoError(t, c.Del(t.Context(), key).Err())
		}
	}
	time.Sleep(d)
}

// TestP1_NodeCountsFromWhereItNamed asks for starts of one node while the way to
// Redis is blocked. The node named each at another time, but all would have begun
// when the answers came, so the age of each tells how late it is.
func TestP1_NodeCountsFromWhereItNamed(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		all := charge("all", throttle.PerHour(1000))
		mine := own(charge("mine", throttle.SlidingWindow(1, 100*time.Millisecond)))
		bookAside(t.Context(), s, booking(all))
		var got []**outcome
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			got = append(got, bookAside(t.Context(), s, booking(mine, all)))
		}
		tap.open()
		for i, o := range got {
			require.NoError(t, (*o).err)
			require.True(t, (*o).grant.OK)
			require.Zero(t, (*o).grant.Wait)
			require.Equal(t, time.Duration(2-i)*150*time.Millisecond, (*o).grant.Age, "%d", i)
		}
	})
}

// TestP1_UndoLeavesOthersInFlight gives back a start of the fleet that had to
// wait, because the node has no room for another. It holds nothing in flight, but
// what somebody else of this program held was given back with it.
func TestP1_UndoLeavesOthersInFlight(t *testing.T) {
	onEmpty(t, func(t *testing.T, _ *redis.Client, s *redisstore.Store) {
		flying, minute := charge("flying", throttle.Concurrency(1)), charge("minute", throttle.PerMinute(1))
		node := own(charge("node", throttle.PerHour(1)))
		board(t, s, flying)
		require.Zero(t, book(t, s, minute))
		k := booking(minute, flying, node)
		g := ask(t, s, k)
		require.True(t, g.OK)
		require.Equal(t, time.Minute+time.Microsecond, g.Wait)

		book(t, s, node)
		require.NoError(t, s.Pause(t.Context(), node, time.Hour))
		k.Instead, k.MaxWait = g.Handle, 0
		require.False(t, ask(t, s, k).OK)
		refused(t, s, flying)
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, minute), "the start is given back")
	})
}

// TestP1_NextWindowIsLonger books into the next month, or day, which is longer
// than this one. The key expired, and the program forgot, before that was over.
func TestP1_NextWindowIsLonger(t *testing.T) {
	t.Parallel()
	ny, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	for name, at := range map[string]struct {
		limit            throttle.Limit
		now, start, last time.Time
	}{
		"month": {
			throttle.CalendarWindow(1, throttle.Month, time.UTC), time.Date(2001, 2, 27, 12, 0, 0, 0, time.UTC),
			time.Date(2001, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2001, 3, 31, 12, 0, 0, 0, time.UTC),
		},
		"day of 25 hours": {
			throttle.CalendarWindow(1, throttle.Day, ny), time.Date(2000, 10, 28, 12, 0, 0, 0, ny),
			time.Date(2000, 10, 29, 0, 0, 0, 0, ny), time.Date(2000, 10, 29, 23, 30, 0, 0, ny),
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
				time.Sleep(time.Until(at.now))
				one := charge("one", at.limit)
				require.Zero(t, book(t, s, one))
				require.Equal(t, at.start.Sub(at.now), book(t, s, one))
				pass(t, c, time.Until(at.last), s.Key(one.Budget))

				_, end := at.limit.Window(at.last)
				fresh := redisstore.NewAt(c, nil, bubbleClock)
				require.Equal(t, time.Until(end), book(t, fresh, one), "the key is there")
				forgets(t, s.Client())
				require.Equal(t, time.Until(end), bookLost(t, s, one), "the program remembers")
			})
		})
	}
}

// TestP1_RecordOutlivesLease loses the answer that a request may fly. When Redis
// can be reached again the lease is over and another flies, but the record of the
// call still said yes.
func TestP1_RecordOutlivesLease(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		a, _ := loaded(t, c, nil)
		b := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		away := &says{}
		c.AddHook(away)
		c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			if err == nil && away.calls.Load() == 0 {
				away.set(errAway)
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", throttle.Concurrency(1))
		got := bookAside(t.Context(), a, booking(one))
		refused(t, b, one)
		time.Sleep(25 * time.Second)
		k, g := board(t, b, one)
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*got).err)
		require.False(t, (*got).grant.OK)
		require.NotNil(t, (*got).grant.Ready)
		b.Release(k, g)
		require.True(t, woken((*got).grant, soon))
		time.Sleep(2 * time.Second) // calls that are left behind come to their end
	})
}

// TestP12_GivenBackIsNotLost gives starts back, all that a budget had. Its key
// expired at once, and the program, which remembers them, took it for lost.
func TestP12_GivenBackIsNotLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit     throttle.Limit
		notBefore time.Duration
		idle      time.Duration
	}{
		"day":       {throttle.CalendarWindow(1, throttle.Day, time.UTC), 0, 1500 * time.Millisecond},
		"far ahead": {throttle.SlidingWindow(1, 500*time.Millisecond), 20 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
				one := charge("one", test.limit)
				if test.notBefore > 0 {
					require.Zero(t, book(t, s, one))
				}
				k := booking(one)
				k.NotBefore = test.notBefore
				g := ask(t, s, k)
				require.Equal(t, test.notBefore, g.Wait)
				s.Cancel(k, g)
				pass(t, c, test.idle, s.Key(one.Budget))
				require.Zero(t, book(t, s, one))
			})
		})
	}
}

// TestP12_FreeIsNotLost settles the only start at nothing, which leaves the key
// as empty as a start that was given back.
func TestP12_FreeIsNotLost(t *testing.T) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		hundred := charge("hundred", throttle.PerHour(100))
		k := booking(hundred)
		k.Charges[0].Cost = 100
		require.NoError(t, s.Settle(t.Context(), k, ask(t, s, k), []int{0}))
		pass(t, c, 1500*time.Millisecond, s.Key(hundred.Budget))
		require.Zero(t, book(t, s, hundred))
	})
}

// TestP7_GivenBackAgainAndAgain goes on after pauses in which the key expired.
// Each time it was repaired, wrongly, and from then on nothing could be given
// back.
func TestP7_GivenBackAgainAndAgain(t *testing.T) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		ten := charge("ten", throttle.PerHour(10))
		for range 4 {
			for range 3 {
				k, g := board(t, s, ten)
				s.Cancel(k, g)
			}
			pass(t, c, 1300*time.Millisecond, s.Key(ten.Budget))
		}
		startNow(t, s, 10, ten)
		require.Positive(t, book(t, s, ten))
	})
}

// TestP1_LongerAsMemstore: starts that were forgotten are counted again for a longer window,
// together with all those that may be used at the same time.
func TestP1_LongerAsMemstore(t *testing.T) {
	onEmpty(t, func(t *testing.T, _ *redis.Client, red *redisstore.Store) {
		const ms = time.Millisecond
		mem, c := memstore.New(), charge("longer", throttle.SlidingWindow(10, 100*ms))
		both := func(wait time.Duration, ok bool) {
			k := booking(c)
			k.Spread, k.MaxWait = 300*ms, 0
			for _, s := range []throttle.Store{mem, red} {
				g := ask(t, s, k)
				require.Equal(t, ok, g.OK)
				require.Equal(t, wait, g.Wait)
			}
		}
		both(0, true)
		time.Sleep(200 * ms)
		both(0, true)
		time.Sleep(50 * ms)
		both(0, true)
		time.Sleep(200 * ms)
		c.Cost = 10
		both(200*ms+time.Microsecond, false) // the first is forgotten
		time.Sleep(10 * ms)
		c.Limit, c.Cost = throttle.SlidingWindow(1000, time.Second), 909
		both(1090*ms+time.Microsecond, false)
	})
}
