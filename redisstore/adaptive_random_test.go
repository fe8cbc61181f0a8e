package redisstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_AdaptiveAsMemstore is TestP1_AsMemstore for budgets that learn, of an upstream
// that refuses starts in spite of room. Both stores have the same ceilings.
func TestP1_AdaptiveAsMemstore(t *testing.T) {
	server := redistest.Shared(t)
	falls := 0
	for seed := range uint64(soak.Most(2*differentialSeeds, 8)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				require.NoError(t, client.FlushDB(t.Context()).Err())
				d := newPair(t, 200+seed, redisstore.NewAt(client, nil, bubbleClock))
				for d.op = range differentialOps {
					for i := range d.budgets {
						d.budgets[i].Adaptive = d.op%10 > 0
					}
					switch r := d.rng.IntN(100); {
					case r < 2:
						c := &d.budgets[d.rng.IntN(len(d.budgets))]
						c.Limit = throttle.TokenBucket(1+d.rng.IntN(1000), time.Minute, 1+d.rng.IntN(200))
						d.adorn(c)
					case r < 12:
						falls += d.refuse()
					case r < 22:
						c := d.budgets[d.rng.IntN(len(d.budgets))]
						d.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
					default:
						d.step()
					}
				}
			})
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
	r := throttle.Refusal{Length: long, Ago: d.duration(), Start: old.grant}
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
