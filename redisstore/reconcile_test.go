package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// state tells a store what an upstream says.
func state(t *testing.T, s throttle.Store, c throttle.Charge, left int, reset time.Duration) {
	t.Helper()
	require.NoError(t, s.Reconcile(t.Context(), c, throttle.Quota{Left: left, Reset: reset}))
}

// TestP11_ReconcileReachesOthers has one program hear that little is left. Of the
// sleepers of another those book anew that no longer fit, at once.
func TestP11_ReconcileReachesOthers(t *testing.T) {
	t.Parallel()
	client := redistest.Single(t).Client(t)
	a, b := redisstore.New(client, nil), redisstore.New(client, nil)
	hourly := charge("a name with spaces", throttle.PerHour(10))
	var watches []throttle.Watch
	var news []chan struct{}
	for i := range 2 {
		k := booking(hourly)
		k.NotBefore = time.Duration(1+i) * time.Minute
		g := ask(t, b, k)
		news = append(news, make(chan struct{}, 1))
		watches = append(watches, b.Watch(k, g, news[i]))
		defer watches[i].Stop()
	}
	listeners(t, client, 1)
	state(t, a, hourly, 1, time.Hour)
	<-news[1]
	require.Empty(t, news[0])
	for i, want := range []bool{true, false} {
		ok, err := watches[i].Confirm(t.Context(), -1)
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
}

// TestP10_Reconcile hears of something else all the time.
func TestP10_Reconcile(t *testing.T) {
	eachBubble(t, []throttle.Limit{
		throttle.PerMinute(100), throttle.SlidingWindow(1<<40, time.Hour), throttle.FixedWindow(1_000_000, time.Minute),
		throttle.TokenBucket(1, time.Minute, 100_000),
	}, func(t *testing.T, server *redistest.Server, limit throttle.Limit) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		c := charge("budget", limit)
		for i := range 1000 {
			state(t, s, c, limit.Capacity()-i*limit.Capacity()/1000, time.Duration(i%59)*time.Second+time.Duration(i)*time.Microsecond)
			time.Sleep(37 * time.Millisecond)
			if i%50 == 0 {
				requireSmall(t, client)
			}
		}
		requireSmall(t, client)
	})
}

// TestP11_ReconcileAsMemstore is TestP1_AsMemstore for budgets of which an upstream
// says all the time what is left. Both stores let the same sleepers book anew.
func TestP11_ReconcileAsMemstore(t *testing.T) {
	all := 0
	eachBubble(t, seeds(soak.Most(differentialSeeds, 4)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client) // over a connection that is there before years pass: one made later costs minutes
		d := newPair(t, 100+seed, redisstore.NewAt(client, nil, bubbleClock))
		moved := 0
		for d.op = range differentialOps {
			switch {
			case d.rng.IntN(50) == 0:
				c := &d.budgets[d.rng.IntN(len(d.budgets))]
				c.Limit = throttle.TokenBucket(1+d.rng.IntN(1000), time.Minute, 1+d.rng.IntN(200))
				d.adorn(c)
			case d.rng.IntN(4) == 0:
				moved += d.state()
			default:
				d.step()
			}
		}
		all += moved
	})
	require.Greater(t, all, soak.Most(differentialSeeds, 4))
}

// state tells both stores what an upstream says, compares which sleepers are to book
// anew, and returns how many.
func (d *pair) state() (moved int) {
	c := d.budgets[d.rng.IntN(len(d.budgets))]
	sleepers := d.sleepers(c)
	n := c.Limit.Capacity()
	q := throttle.Quota{Left: d.rng.IntN(n+2) - 1, Reset: d.duration()}
	if d.rng.IntN(2) == 0 {
		q.Left = d.rng.IntN(1 + n/10)
	}
	if d.rng.IntN(2) == 0 {
		q.Age = d.duration()
	}
	require.NoError(d, d.mem.Reconcile(d.Context(), c, q))
	require.NoError(d, d.red.Reconcile(d.Context(), c, q))
	for i, s := range sleepers {
		want, err := s.mem.Confirm(d.Context(), -1)
		require.NoError(d, err)
		got, err := s.red.Confirm(d.Context(), -1)
		require.NoError(d, err)
		require.Equal(d, want, got, "operation %d: sleeper %d of %+v", d.op, i, c)
		if !got {
			moved++
		}
		s.mem.Stop()
		s.red.Stop()
	}
	return moved
}

// A sleeper is a start to come that both stores watch over.
type sleeper struct{ mem, red throttle.Watch }

// sleepers books some starts to come in a budget.
func (d *pair) sleepers(c throttle.Charge) (all []sleeper) {
	for range d.rng.IntN(5) {
		k := throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1, NotBefore: d.duration()}
		mine, theirs := k, k
		mine.Charges, theirs.Charges = slices.Clone(k.Charges), slices.Clone(k.Charges)
		g := ask(d.T, d.mem, &mine)
		r := ask(d.T, d.red, &theirs)
		require.Equal(d, g.Wait, r.Wait, "operation %d: %+v", d.op, k)
		all = append(all, sleeper{d.mem.Watch(&mine, g, make(chan struct{}, 1)), d.red.Watch(&theirs, r, make(chan struct{}, 1))})
	}
	return all
}
