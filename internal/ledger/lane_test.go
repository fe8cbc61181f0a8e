package ledger

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestP5_EveryShareHasALane: in memory each share with waiters has a lane of its own, and a row as bytes is bounded. Nobody is lost.
func TestP5_EveryShareHasALane(t *testing.T) {
	r := &Row{seen: 1000}
	type waiter struct {
		at    place
		share uint64
	}
	var all []waiter
	for i := range int64(1000) {
		at, share := r.lineUp(1, store.Share{ID: uint64(5000 + i)}, place{arrival: i + 1, cost: 2}, false)
		all = append(all, waiter{at, share})
	}
	require.Len(t, r.queue.lanes[1], 1000)
	require.EqualValues(t, 2000, r.waiting())

	b, err := r.MarshalBinary()
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), MaxBytes)
	var read Row
	require.NoError(t, read.UnmarshalBinary(b))
	require.EqualValues(t, 2000, read.waiting())

	for _, w := range all {
		r.queue.leave(1, w.share, w.at)
		read.queue.leave(1, w.share, w.at)
	}
	require.True(t, r.queue.empty())
	require.Empty(t, r.queue.lanes[1])
	require.True(t, read.queue.empty())
}

// TestP5_ARowTellsAHundredSharesApart: so many lanes, whatever their weights are, fit a row whose window is full of entries and whose callers are in ten
// programs. Of a limit above 100,000 it is fifty.
func TestP5_ARowTellsAHundredSharesApart(t *testing.T) {
	for _, cost := range []int64{1, 50, 10_000, 1_000_000} {
		r, dice := &Row{seen: 1_700_000_000_000_000, span: 1_035_000}, rand.New(rand.NewPCG(uint64(cost), 1))
		most := int64(maxShares(8 * cost))
		for i := range int64(windowParts) {
			at := r.seen + i*8000
			r.push(at, at, cost*8, at)
		}
		for node := range int64(10) {
			r.lease(Node{ID: dice.Int64N(1 << 50), Lease: 10_000_000 + node})
		}
		for i := range int64(3 * most) {
			share := store.Share{ID: uint64(1)<<52 + uint64(i%most), Weight: 1 + dice.IntN(maxWeight)}
			_, _ = r.lineUp(1, share, place{arrival: r.seen + i*1000, cost: cost, node: r.leases[i%10].node}, false)
			own := r.queue.lanes[1].of(share.ID)
			own.finish, own.served = dice.Int64N(own.step(cost)+1), dice.Int64N(cost*1000)
		}

		b, err := r.MarshalBinary()
		require.NoError(t, err)
		var read Row
		require.NoError(t, read.UnmarshalBinary(b))
		require.Len(t, read.entries, windowParts)
		t.Logf("cost %d: %d bytes", cost, len(b))
		require.Len(t, read.queue.lanes[1], int(most), "cost %d", cost)
		require.Nil(t, read.queue.lanes[1].of(commonShare))
	}
}

// TestP5_LanesTakeTurns: by weight, from the moment when a share has callers.
func TestP5_LanesTakeTurns(t *testing.T) {
	l := new(Row)
	for i := range int64(30) {
		l.lineUp(1, store.Share{ID: 7, Weight: 1}, place{arrival: 10 + i, cost: 1}, false)
		l.lineUp(1, store.Share{ID: 8, Weight: 2}, place{arrival: 50 + i, cost: 1}, false)
	}
	serve := func() uint64 {
		c := &l.queue.lanes[1]
		next := c.next()
		share, at := next.share, next.places[0]
		next.remove(at)
		c.serve(next, at.cost)
		*c = c.tidy()
		return share
	}
	got := make(map[uint64]int)
	for range 30 {
		got[serve()]++
	}
	require.InDelta(t, 10, got[7], 1)
	require.InDelta(t, 20, got[8], 1)

	// One that comes now goes before all, once: it has no credit.
	l.lineUp(1, store.Share{ID: 9}, place{arrival: 99, cost: 1}, false)
	l.lineUp(1, store.Share{ID: 9}, place{arrival: 100, cost: 1}, false)
	require.LessOrEqual(t, l.queue.before(1, 10, newcomer, false), int64(3), "those that are as far as a newcomer, one each")
	var order []uint64
	for range 6 {
		order = append(order, serve())
	}
	require.Contains(t, order[:3], uint64(9))
	nines := 0
	for _, share := range order {
		if share == 9 {
			nines++
		}
	}
	require.LessOrEqual(t, nines, 2)
}

// TestP5_ACallerInFrontGoesBeforeAllShares: it had its turn.
func TestP5_ACallerInFrontGoesBeforeAllShares(t *testing.T) {
	r := new(Row)
	r.lineUp(1, store.Share{ID: 7}, place{arrival: 10, cost: 1}, false)
	r.lineUp(1, store.Share{ID: 8}, place{arrival: 9, cost: 1, front: true}, false)
	r.queue.lanes[1].of(8).finish = 1 << 30
	require.EqualValues(t, 8, r.queue.lanes[1].next().share)
	require.EqualValues(t, 1, r.queue.before(1, 7, 10, false))
	require.EqualValues(t, 0, r.queue.before(1, 8, 9, true))
}

// TestP5_StatusTellsShares: which wait, and what each got.
func TestP5_StatusTellsShares(t *testing.T) {
	b := func(share uint64, weight int) *store.Booking {
		c := store.Charge{Budget: store.Budget{Key: Key{1}}, Limit: store.LeakyBucket(1, 1_000_000_000), Cost: 1}
		c.Share = store.Share{ID: share, Weight: weight}
		return &store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Horizon: 1000}
	}
	row, now := new(Row), int64(1_700_000_000_000_000)
	var a Arrivals
	var first []*Waiter
	for range 3 {
		for share := range uint64(2) {
			w := new(Waiter)
			NewRequest(now, Node{}, &a, b(10+share, 1+int(share)), []*Row{row}).Book(w)
			first = append(first, w)
		}
	}
	status := func() []store.ShareStatus {
		return NewRequest(now, Node{}, nil, &store.Booking{Charges: b(0, 0).Charges}, []*Row{row.Clone()}).Status().Shares
	}
	require.Equal(t, []store.ShareStatus{
		{Share: store.Share{ID: 10, Weight: 1}, Waiting: 2}, {Share: store.Share{ID: 11, Weight: 2}, Waiting: 3},
	}, status())
	now += 1_000_000
	NewRequest(now, Node{}, &a, b(11, 2), []*Row{row}).Serve(first[1], Key{1})
	require.Equal(t, store.ShareStatus{Share: store.Share{ID: 11, Weight: 2}, Waiting: 2, Served: 1}, status()[1])
}

// TestP5_ServedOutOfTurn: a share whose callers start before their turn, because others wait for another budget as
// well, owes its turns to the others for as long as they wait.
func TestP5_ServedOutOfTurn(t *testing.T) {
	row, arrival := new(Row), int64(0)
	comes := func(share uint64) {
		arrival++
		row.lineUp(1, store.Share{ID: share, Weight: 1}, place{arrival: arrival, cost: 1}, false)
	}
	serve := func(l *lane) (share uint64) {
		at, share := l.places[0], l.share
		l.remove(at)
		row.queue.lanes[1].serve(l, at.cost)
		return share
	}
	for range 10 {
		comes(10)
		comes(20)
	}

	for range 4 {
		serve(&row.queue.lanes[1][1])
	}
	var order []uint64
	for range 8 {
		order = append(order, serve(row.queue.lanes[1].next()))
	}
	require.Equal(t, []uint64{10, 10, 10, 10, 10, 20, 10, 20}, order)
}

// TestP5_StartTimeFairQueueing: for two shares that always have callers, what they get over any interval differs, over their weights, by at most
// one caller of each, whatever the weights, the costs and the callers of other shares are.
func TestP5_StartTimeFairQueueing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		row, arrival := new(Row), int64(0)
		n := 2 + r.IntN(8)
		weights, costs, got := make([]int, n), make([]int, n), make([]float64, n)
		comes := func(share int) {
			arrival++
			row.lineUp(1, store.Share{ID: uint64(10 + share), Weight: weights[share]}, place{arrival: arrival, cost: int64(1 + r.IntN(costs[share]))}, false)
		}
		for i := range n {
			weights[i], costs[i] = 1+r.IntN(9), 1+r.IntN(50)
			comes(i)
			comes(i)
		}

		// The differences of all pairs at all moments: an interval's is that of two of them. The share 0 comes and goes.
		low, high := make([]float64, n*n), make([]float64, n*n)
		for range 500 {
			c := &row.queue.lanes[1]
			next := c.next()
			at, share := next.places[0], int(next.share)-10
			next.remove(at)
			c.serve(next, at.cost)
			*c = c.tidy()
			got[share] += float64(at.cost) / float64(weights[share])
			if share > 0 || r.IntN(3) == 0 {
				comes(share)
			}
			if r.IntN(5) == 0 {
				comes(0)
			}
			for f := 1; f < n; f++ {
				for g := 1; g < n; g++ {
					d := got[f] - got[g]
					low[f*n+g], high[f*n+g] = min(low[f*n+g], d), max(high[f*n+g], d)
				}
			}
		}
		for f := 1; f < n; f++ {
			for g := 1; g < n; g++ {
				bound := float64(costs[f])/float64(weights[f]) + float64(costs[g])/float64(weights[g])
				require.LessOrEqual(t, high[f*n+g]-low[f*n+g], bound+0.001, "seed %d, shares %d and %d", seed, f, g)
			}
		}
	}
}

// TestP5_BeforeOfEqualCosts: if all callers cost the same, what is told to go before a newcomer is what is served before it.
func TestP5_BeforeOfEqualCosts(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 8))
	for range 2000 {
		l, cost := new(Row), 1+dice.Int64N(5)
		comes := func(arrival int64) (share uint64, before int64) {
			tenant := dice.IntN(4)
			share = 7 + uint64(tenant)
			if l.queue != nil {
				before = l.queue.before(1, share, newcomer, false)
			}

			// Weights that are powers of two have tags without a rest.
			l.lineUp(1, store.Share{ID: share, Weight: 1 << tenant}, place{arrival: arrival, cost: cost}, false)
			return share, before
		}
		serve := func() (arrival int64) {
			c := &l.queue.lanes[1]
			next := c.next()
			arrival = next.places[0].arrival
			next.remove(next.places[0])
			c.serve(next, cost)
			*c = c.tidy()
			return arrival
		}

		n := int64(2 + dice.IntN(30))
		for i := range n {
			comes(10 + i)
		}
		for range dice.Int64N(n) {
			serve()
		}

		share, told := comes(1000)
		served := int64(0)
		for serve() != 1000 {
			served += cost
		}
		require.Equal(t, served, told, "share %d, %d callers", share, n)
	}
}
