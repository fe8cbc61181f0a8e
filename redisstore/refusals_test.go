package redisstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// learned has one of two programs told of a refusal, and returns both, the charge, and the
// start that was refused.
func learned(t *testing.T, client *redis.Client) (one, other *redisstore.Store, c store.Charge, refused store.Grant) {
	one, other = redisstore.New(client, redisstore.Options{}), redisstore.New(client, redisstore.Options{})
	c = charge("adaptive", store.PerMinute(40))
	c.Adaptive = true
	for range 24 {
		g := ask(t, one, booking(c))
		require.True(t, g.OK)
		refused = g
	}
	from, to, err := one.Refuse(t.Context(), c, store.Refusal{Start: refused})
	require.NoError(t, err)
	require.Equal(t, []float64{40, 21}, []float64{from, to})
	return one, other, c, refused
}

// TestAdaptive_TheFleetShares: what one program learns, all obey, and a call that is made
// again teaches nothing new.
func TestAdaptive_TheFleetShares(t *testing.T) {
	_, other, c, grant := learned(t, redistest.Shared(t).Client(t))
	st := status(t, other, c)
	require.Equal(t, 21, int(st.Ceiling))
	require.Positive(t, st.Wait)
	refused(t, other, c)
	from, to, err := other.Refuse(t.Context(), c, store.Refusal{Start: grant})
	require.NoError(t, err)
	require.Equal(t, from, to)

	firm := c
	firm.Adaptive = false
	require.True(t, ask(t, other, bookingFor(0, firm)).OK)
}

// TestAdaptive_KeysOutliveWhatTheyHold: a row is kept until its ceiling means nothing.
func TestAdaptive_KeysOutliveWhatTheyHold(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	one, _, c, _ := learned(t, client)
	left := lifetime(t, client, one.Key(c.Budget))
	require.InDelta(t, 4*13*time.Minute, left, float64(time.Minute))
}

// TestP1_AdaptiveAsMemstore is TestP1_AsMemstore for budgets that learn, of an upstream
// that refuses starts in spite of room. Both stores have the same ceilings.
func TestP1_AdaptiveAsMemstore(t *testing.T) {
	falls := 0
	for seed := range uint64(soak.Most(2*differentialSeeds, 5)) {
		runBubble(t, fmt.Sprint(seed), func(t *testing.T, server *redistest.Server) {
			client := server.Client(t)
			forgets(t, client) // over a connection that is there before years pass: one made later costs minutes
			d := newPair(t, 200+seed, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
			for d.op = range differentialOps {
				for i := range d.budgets {
					d.budgets[i].Adaptive = d.op%10 > 0
				}
				switch r := d.rng.IntN(100); {
				case r < 2:
					c := &d.budgets[d.rng.IntN(len(d.budgets))]
					c.Limit = store.TokenBucket(1+d.rng.IntN(1000), time.Minute, 1+d.rng.IntN(200))
					d.adorn(c)
				case r < 12:
					falls += d.refuse()
				case r < 22:
					c := d.budgets[d.rng.IntN(len(d.budgets))]
					d.book(store.Booking{Charges: []store.Charge{c}, MaxWait: -1})
				default:
					d.step()
				}
			}
		})
	}
	require.Greater(t, falls, 20)
}

// refuse tells both stores that the upstream refused one of the latest starts, compares
// what they learn, and returns 1 if a ceiling fell.
func (d *pair) refuse() int {
	old, ok := d.take()
	if d.rng.IntN(2) == 0 && len(d.grants) > 0 {
		old = d.grants[len(d.grants)-1]
	}
	if !ok {
		return 0
	}
	c, long := old.booking.Charges[d.rng.IntN(len(old.booking.Charges))], time.Duration(0)
	c.Adaptive = true
	if d.rng.IntN(2) == 0 {
		long = min(d.duration(), time.Minute)
	}
	r := store.Refusal{Length: long, Ago: d.duration(), Start: old.grant}
	from, to, err := d.mem.Refuse(d.Context(), c, r)
	require.NoError(d, err)
	rFrom, rTo, err := d.red.Refuse(d.Context(), c, r)
	require.NoError(d, err)
	require.Equal(d, [2]float64{from, to}, [2]float64{rFrom, rTo}, "operation %d: %+v at %d", d.op, c, old.grant.Handle.Start)
	if to < from {
		return 1
	}
	return 0
}

// TestP11_SlowStartOfACrowd serves many callers with one call after a penalty, when
// one goes first and then few: they start as if each had come by itself.
func TestP11_SlowStartOfACrowd(t *testing.T) {
	t.Parallel()
	const crowd = 80
	for _, limit := range []store.Limit{
		store.PerSecond(40), store.PerSecond(1000), store.PerHour(1000), store.FixedWindow(40, time.Second), store.TokenBucket(40, time.Second, 40),
	} {
		for name, pause := range map[string]time.Duration{"closed": 10 * time.Second, "open for one": 1900 * time.Millisecond, "open again": 1500 * time.Millisecond} {
			runBubble(t, limit.String()+" "+name, func(t *testing.T, server *redistest.Server) {
				client, same := server.Client(t), memstore.New()
				c := charge("budget", limit)
				s, _ := loaded(t, client, nil)
				require.NoError(t, s.Pause(t.Context(), c, pause))
				require.NoError(t, same.Pause(t.Context(), c, pause))
				time.Sleep(2 * time.Second)

				tap := newTap(client, isScript)
				bookAside(t.Context(), s, booking(charge("another", limit)))
				var all []**outcome
				for range crowd {
					all = append(all, bookAside(t.Context(), s, booking(c)))
				}
				tap.open()
				require.Len(t, tap.names(), 2, "one for another budget, one for all who came meanwhile")
				var got, want []time.Duration
				for _, o := range all {
					require.NoError(t, (*o).err)
					got, want = append(got, (*o).grant.Wait), append(want, book(t, same, c))
				}
				slices.Sort(got)
				require.Equal(t, want, got)
			})
		}
	}
}

// TestP11_TheProbeIsNoLongerAlone because Redis was away when it was told of the refusal.
func TestP11_TheProbeIsNoLongerAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s := redisstore.New(server.Client(t), redisstore.Options{})
	for _, limit := range []store.Limit{store.PerSecond(400), store.Unlimited()} {
		c := charge(limit.String(), limit)
		_, err := s.Status(t.Context(), c) // it knows the server's clock
		require.NoError(t, err)
		server.Pause()
		told := make(chan error, 1)
		go func() {
			_, _, err := s.Refuse(t.Context(), c, store.Refusal{Length: time.Minute, Ago: 200 * time.Millisecond})
			told <- err
		}()
		time.Sleep(time.Second) // for so long Redis is away
		server.Continue()
		require.NoError(t, <-told)
		k := booking(c)
		k.Horizon = time.Hour
		probe := ask(t, s, k)
		require.InDelta(t, (400 * time.Millisecond).Microseconds(), ask(t, s, k).Handle.Start-probe.Handle.Start, 1, "twice as long as the refusal took")
	}
}

// TestP11_KeysOutliveABan: a ban that is met again is known for as long as that makes it
// longer, however short the window.
func TestP11_KeysOutliveABan(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	for _, limit := range []store.Limit{store.PerSecond(40), store.LeakyBucket(40, time.Second), store.Concurrency(2), store.Unlimited()} {
		c := charge(limit.String(), limit)
		_, _, err := s.Refuse(t.Context(), c, store.Refusal{Length: time.Minute, Ago: time.Second})
		require.NoError(t, err)
		key := s.Key(c.Budget)
		if limit.Kind() == store.KindConcurrency {
			key = s.LeasesKey(c.Budget)
		}
		left := lifetime(t, client, key)
		require.Greater(t, left, time.Minute+15*time.Second) // some seconds of which are the machine's
	}
}

// TestP11_KeysOutliveASlowStart looks at when the key of a budget expires, right
// after the penalty and after a booking.
func TestP11_KeysOutliveASlowStart(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	for _, limit := range []store.Limit{store.SlidingWindow(40, 20*time.Second), store.FixedWindow(40, 20*time.Second), store.TokenBucket(1, time.Second, 60)} {
		c := charge(limit.String(), limit)
		require.NoError(t, s.Pause(t.Context(), c, time.Hour))
		for range 2 {
			left := lifetime(t, client, s.Key(c.Budget))
			require.Greater(t, left, time.Hour+35*time.Second) // some seconds of which are the machine's
			b := bookingFor(0, c)
			require.False(t, ask(t, s, b).OK)
		}
	}
}

// TestP11_APenaltyThatIsStoredLate tells of a penalty while the server hears nothing.
// When it does, it closes the budget for what is left.
func TestP11_APenaltyThatIsStoredLate(t *testing.T) {
	eachBubble(t, []store.Limit{store.PerSecond(5), store.Concurrency(5)}, func(t *testing.T, server *redistest.Server, limit store.Limit) {
		c := newSharers(t, server, 1, redisstore.Options{}, forty)
		s, five := c.nodes[0].store, charge("five", limit)
		book(t, s, five)
		away(true, c.nodes...)
		time.AfterFunc(2500*time.Millisecond, func() { back(c.nodes...) })
		require.NoError(t, s.Pause(t.Context(), five, 6*time.Second))
		require.Equal(t, 3500*time.Millisecond, status(t, s, five).Paused)
		c.end()
	})
}
