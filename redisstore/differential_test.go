package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the machine may have no zones

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

const (
	differentialSeeds = 16
	differentialOps   = 250
)

// TestP1_AsMemstore does the same random operations on both stores. They must
// give the same answers, to the microsecond, in everything but Age.
func TestP1_AsMemstore(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(differentialSeeds, 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := server.Client(t)
				require.NoError(t, client.FlushDB(t.Context()).Err())
				d := newPair(t, seed, redisstore.NewAt(client, nil, bubbleClock))
				for d.op = range differentialOps {
					d.step()
				}
			})
		})
	}
}

// A pair is two stores that are told the same.
type pair struct {
	*testing.T
	rng     *rand.Rand
	op      int
	mem     *memstore.Store
	red     *redisstore.Store
	budgets []throttle.Charge
	grants  []pairGrant // of the latest bookings
}

// A pairGrant can be given back.
type pairGrant struct {
	booking throttle.Booking
	grant   throttle.Grant
}

func newPair(t *testing.T, seed uint64, red *redisstore.Store) *pair {
	d := &pair{T: t, rng: rand.New(rand.NewPCG(seed, 2)), red: red}
	// Days that are left out or come twice lie ahead of some runs.
	days := []string{"2000-01-01", "2011-12-29", "2010-03-31", "2026-10-24", "2024-12-30", "2149-12-31"}
	day, err := time.Parse(time.DateOnly, days[seed%uint64(len(days))])
	require.NoError(t, err)
	time.Sleep(time.Until(day))
	d.mem = memstore.New()
	for i := range 5 {
		c := charge(fmt.Sprint("budget ", i), d.limit())
		c.Budget.Key[0] = byte(i) // memstore forgets only what shares a shard
		d.adorn(&c)
		d.budgets = append(d.budgets, c)
	}
	return d
}

// step does one operation.
func (d *pair) step() {
	switch r := d.rng.IntN(100); {
	case r < 50:
		d.book(d.booking())
	case r < 53:
		d.crowd()
	case r < 61:
		d.replace()
	case r < 70:
		d.cancel()
	case r < 73:
		d.pause()
	case r < 74:
		d.resume()
	case r < 78:
		d.status()
	case r < 80:
		c := &d.budgets[d.rng.IntN(len(d.budgets))]
		c.Limit = d.limit()
		d.adorn(c)
	default:
		time.Sleep(d.duration())
	}
}

// book books in both and compares the grants and what they say of shadows.
func (d *pair) book(k throttle.Booking) {
	want, got := k, k
	want.Charges, got.Charges = slices.Clone(k.Charges), slices.Clone(k.Charges)
	g, err := d.mem.Book(d.Context(), &want)
	require.NoError(d, err)
	r, err := d.red.Book(d.Context(), &got)
	require.NoError(d, err)
	r.Age, g.Handle.Stamp, r.Handle.Stamp = 0, 0, 0 // of no interest here
	if !r.OK {
		r.Handle = throttle.Handle{} // says nothing
	}
	require.Equal(d, g, r, "operation %d: %+v", d.op, k)
	if g.OK {
		d.grants = append(d.grants, pairGrant{want, g})
		d.grants = d.grants[max(0, len(d.grants)-100):]
	}
}

// crowd is many equal bookings at once, so that rows grow beyond their bound.
func (d *pair) crowd() {
	k := d.booking()
	k.MaxWait = -1
	for range 20 + d.rng.IntN(120) {
		d.book(k)
		if d.rng.IntN(4) == 0 {
			time.Sleep(time.Duration(d.rng.IntN(2000)) * time.Microsecond)
		}
	}
}

// replace books instead of an earlier grant.
func (d *pair) replace() {
	if old, ok := d.take(); ok {
		old.booking.Instead, old.booking.MaxWait = old.grant.Handle, d.patience()
		d.book(old.booking)
	}
}

func (d *pair) cancel() {
	if old, ok := d.take(); ok {
		d.mem.Cancel(&old.booking, old.grant)
		d.red.Cancel(&old.booking, old.grant)
	}
}

// take returns one of the latest grants, which may be given back more than once
// and under a limit that has changed: the stores must agree even then.
func (d *pair) take() (pairGrant, bool) {
	if len(d.grants) == 0 {
		return pairGrant{}, false
	}
	return d.grants[d.rng.IntN(len(d.grants))], true
}

func (d *pair) pause() {
	c, long := d.budgets[d.rng.IntN(len(d.budgets))], d.duration()
	if d.rng.IntN(2) == 0 {
		r := throttle.Refusal{Length: long, Ago: d.duration()}
		_, _, err := d.mem.Refuse(d.Context(), c, r)
		require.NoError(d, err)
		_, _, err = d.red.Refuse(d.Context(), c, r)
		require.NoError(d, err)
		return
	}
	require.NoError(d, d.mem.Pause(d.Context(), c, long))
	require.NoError(d, d.red.Pause(d.Context(), c, long))
}

func (d *pair) resume() {
	c := d.budgets[d.rng.IntN(len(d.budgets))]
	require.NoError(d, d.mem.Resume(d.Context(), c))
	require.NoError(d, d.red.Resume(d.Context(), c))
}

func (d *pair) status() {
	c := d.budgets[d.rng.IntN(len(d.budgets))]
	want, err := d.mem.Status(d.Context(), c)
	require.NoError(d, err)
	got, err := d.red.Status(d.Context(), c)
	require.NoError(d, err)
	require.Equal(d, want, got, "operation %d: %+v", d.op, c)
}
