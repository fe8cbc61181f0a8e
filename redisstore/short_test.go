package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestP4_ShortIsTheSame does the same random things with and without the straight
// way through a booking. The answers are the same, and so is what is stored, but
// for the random births of its lives.
func TestP4_ShortIsTheSame(t *testing.T) {
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(12, 3)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			short := play(t, server.Client(t), seed)
			restore := redisstore.LongWay()
			defer restore()
			require.Equal(t, short, play(t, server.Client(t), seed))
		})
	}
}

// play does random things with a busy budget and returns all that came of it.
func play(t *testing.T, client *redis.Client, seed uint64) (seen []string) {
	rng := rand.New(rand.NewPCG(seed, 5))
	synctest.Test(t, func(t *testing.T) {
		s, _ := loaded(t, client, nil)
		c := charge("busy", store.SlidingWindow(129+rng.IntN(20_000), time.Second))
		c.Pace = time.Duration(rng.IntN(2)) * 10 * time.Microsecond
		gate := free("gate") // is open nearly always
		var last *store.Booking
		var mark store.Grant
		for op := range 600 {
			switch r := rng.IntN(100); {
			case r < 70:
				k := booking(c)
				k.Charges[0].Cost = 1 + rng.IntN(3)*rng.IntN(40)
				k.Charges[0].KeepFree = rng.IntN(2) * rng.IntN(50)
				k.MaxWait = time.Duration(rng.IntN(3)-1) * 300 * time.Millisecond
				k.Spread = time.Duration(rng.IntN(2)*rng.IntN(20_000)) * time.Microsecond
				k.Returns = rng.IntN(5) == 0
				if rng.IntN(3) == 0 {
					k.Charges = append([]store.Charge{gate}, k.Charges...)
				}
				if rng.IntN(9) == 0 {
					k.Charges = []store.Charge{gate, free("other")}
				}
				g := ask(t, s, k)
				if seen = append(seen, fmt.Sprint(op, g)); g.OK {
					last, mark = k, g
				}
			case r < 73 && last != nil:
				s.Cancel(last, mark)
				last = nil
			case r < 75:
				closed := []store.Charge{c, gate}[rng.IntN(2)]
				require.NoError(t, s.Pause(t.Context(), closed, time.Duration(rng.IntN(20))*time.Millisecond))
			case r < 76:
				forgets(t, client)
			case r < 77:
				c.Limit = store.SlidingWindow(129+rng.IntN(20_000), []time.Duration{time.Second, time.Second, 700 * time.Millisecond}[rng.IntN(3)])
			case r < 79:
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			default:
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
			}
			seen = append(seen, stored(t, client, s.Key(c.Budget)))
		}
	})
	return seen
}

// TestP4_ShortCallsAreTheSame does the same with calls that serve many callers of
// many budgets.
func TestP4_ShortCallsAreTheSame(t *testing.T) {
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(8, 2)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			short := playMany(t, server.Client(t), seed)
			restore := redisstore.LongWay()
			defer restore()
			require.Equal(t, short, playMany(t, server.Client(t), seed))
		})
	}
}

// playMany lets crowds come while a call is on its way.
func playMany(t *testing.T, client *redis.Client, seed uint64) (seen []string) {
	rng := rand.New(rand.NewPCG(seed, 7))
	synctest.Test(t, func(t *testing.T) {
		s, tap := loaded(t, client, isScript)
		var budgets []store.Charge
		for i := range 12 {
			n := []int{3, 40, 128, 129, 1000, 100_000}[rng.IntN(6)]
			budgets = append(budgets, charge(fmt.Sprint("budget ", i), store.SlidingWindow(n, time.Second)))
		}
		for range 150 {
			var all []**outcome
			for range 1 + rng.IntN(20) {
				k := booking(budgets[rng.IntN(len(budgets))])
				k.Charges[0].Cost = 1 + rng.IntN(2)*rng.IntN(3)
				k.MaxWait = time.Duration(rng.IntN(3)-1) * 700 * time.Millisecond
				k.Spread = time.Duration(rng.IntN(3)/2*rng.IntN(20)) * time.Millisecond
				all = append(all, bookAside(t.Context(), s, k))
			}
			for *all[len(all)-1] == nil {
				tap.letOne()
			}
			for _, o := range all {
				if *o == nil {
					tap.letOne()
				}
				require.NoError(t, (*o).err)
				seen = append(seen, fmt.Sprint((*o).grant.OK, (*o).grant.Wait, (*o).grant.Handle.Start, (*o).grant.HeldBy))
			}
			tap.names()
			for _, c := range budgets {
				seen = append(seen, stored(t, client, s.Key(c.Budget)))
			}
			time.Sleep(time.Duration(rng.IntN(4)*rng.IntN(300_000)) * time.Microsecond)
		}
		close(tap.pass)
	})
	return seen
}

// TestP4_BusyBudgetsTakeTheShortWay: whatever is booked now where there is room, and however
// many starts there were before.
func TestP4_BusyBudgetsTakeTheShortWay(t *testing.T) {
	server := redistest.Shared(t)
	for _, spread := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(spread.String(), func(t *testing.T) {
			defer redisstore.ShortWay()()
			client := server.Client(t)
			synctest.Test(t, func(t *testing.T) {
				s, _ := loaded(t, client, nil)
				second, few := charge("second", store.SlidingWindow(100_000, time.Second)), charge("few", store.SlidingWindow(100, time.Second))
				k := booking(second, inGroup("second", few), inGroup("second", free("gate")))
				k.Spread = spread
				for i := range 1200 {
					g, err := s.Book(t.Context(), k)
					require.NoError(t, err, i)
					require.True(t, g.OK)
					require.Zero(t, g.Wait)
					time.Sleep(11 * time.Millisecond)
					if i%10 == 0 {
						time.Sleep(spread) // starts whose room overlaps share an entry
					}
				}
			})
		})
	}
}

// stored returns the head of the row under a key, without its random births and
// without where its entries stand and when the key expires, which may differ.
func stored(t *testing.T, client *redis.Client, key string) string {
	raw, err := client.Get(t.Context(), key).Bytes()
	if err == redis.Nil {
		return ""
	}
	require.NoError(t, err)
	var head []float64
	for i := range redisstore.HeadNumbers {
		if i != 9 && i != 11 && i != 15 && i != 18 && i != 20 && i != 24 {
			head = append(head, math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	}
	return fmt.Sprintf("%.0f", head)
}

// TestP10_TheShortWayJoinsEntries: a row has 224 entries at the most, also of starts that
// may be used for longer than their window.
func TestP10_TheShortWayJoinsEntries(t *testing.T) {
	onEmpty(t, func(t *testing.T, c *redis.Client, s *redisstore.Store) {
		const window = 126 * time.Microsecond
		k := booking(charge("brief", store.SlidingWindow(1000, window)))
		k.Spread = window
		for range 300 {
			require.True(t, ask(t, s, k).OK)
			time.Sleep(time.Microsecond)
		}
		raw, err := c.Get(t.Context(), s.Key(k.Charges[0].Budget)).Bytes()
		require.NoError(t, err)
		require.Equal(t, 224, numberOf(raw, redisstore.HeadSize))
	})
}
