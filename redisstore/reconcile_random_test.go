package redisstore_test

import (
	"fmt"
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

// TestP11_ReconcileAsMemstore is TestP1_AsMemstore for budgets of which an upstream
// says all the time what is left. Both stores let the same sleepers book anew.
func TestP11_ReconcileAsMemstore(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	all := 0
	for seed := range uint64(soak.Most(differentialSeeds, 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				require.NoError(t, client.FlushDB(t.Context()).Err())
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
		})
	}
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
		g, err := d.mem.Book(d.Context(), &mine)
		require.NoError(d, err)
		r, err := d.red.Book(d.Context(), &theirs)
		require.NoError(d, err)
		require.Equal(d, g.Wait, r.Wait, "operation %d: %+v", d.op, k)
		all = append(all, sleeper{d.mem.Watch(&mine, g, make(chan struct{}, 1)), d.red.Watch(&theirs, r, make(chan struct{}, 1))})
	}
	return all
}
