package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/sharetest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// A spread is some nodes to which callers come by turns.
type spread struct {
	*redisstore.Store // the first
	nodes             []*redisstore.Store
	came              atomic.Int64
}

// A spreadTurn is the turn of a caller that came to a node.
type spreadTurn struct {
	store.Turn
	node *redisstore.Store
}

// Book implements [store.Store].
func (s *spread) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	node, own := s.nodes[s.came.Add(1)%int64(len(s.nodes))], *b
	if t, ok := b.Turn.(spreadTurn); ok {
		node, own.Turn = t.node, t.Turn
	}
	g, err := node.Book(ctx, &own)
	if g.Turn != nil {
		g.Turn = spreadTurn{g.Turn, node}
	}
	return g, err
}

// Cancel implements [store.Store].
func (s *spread) Cancel(b *store.Booking, g store.Grant) {
	node, own := s.Store, *b
	if t, ok := b.Turn.(spreadTurn); ok {
		node, own.Turn = t.node, t.Turn
	}
	if t, ok := g.Turn.(spreadTurn); ok {
		node, g.Turn = t.node, t.Turn
	}
	node.Cancel(&own, g)
}

// spreadStores returns stores whose callers are spread over so many nodes, which hear no messages.
func spreadStores(server *redistest.Server, nodes int) func(*testing.T) store.Store {
	return func(t *testing.T) store.Store { return newSpread(t, server, nodes, false) }
}

// newSpread returns a store whose callers are spread over so many nodes.
func newSpread(t *testing.T, server *redistest.Server, nodes int, listens bool) *spread {
	t.Helper()
	client := server.Client(t)
	forgets(t, client)
	s := &spread{}
	for range nodes {
		node := atRest(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock))
		if listens {
			node.Listen()
		}
		s.nodes = append(s.nodes, node)
	}
	s.Store = s.nodes[0]
	return s
}

// TestP5_Shares: the shares of callers get their parts, whether the callers come to one program or to several.
func TestP5_Shares(t *testing.T) {
	soak.WithoutRace(t) // TestVectors has lines with shares
	server := redistest.Shared(t)
	play := func(name string) bool {
		return soak.Most(true, name == "Weights" || name == "Costs" || name == "LightBesideCallersWithoutShare" || name == "HalfLeave")
	}
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) { storetest.Shares(t, lineSlack, spreadStores(server, nodes), play) })
	}
}

// TestP5_RandomShares is TestP5_Shares for random scenes. The quick run plays the scenes in which callers of a light share once waited for
// a second beside shares whose costs differ.
func TestP5_RandomShares(t *testing.T) {
	soak.WithoutRace(t) // TestVectors has lines with shares
	server := redistest.Shared(t)
	for _, seed := range soak.Most(seeds(40), []uint64{0, 5}) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RandomShares(t, lineSlack, spreadStores(server, 1+int(seed%3)), seed)
		})
	}
}

// TestP5_ManyShares: no number of shares makes one of them starve. In one program each share has its part; where each share has its callers in
// one of two programs, programs that come at different times make parts differ.
func TestP5_ManyShares(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	const seconds = 40
	sharetest.ManyShares(t, spreadStores(server, 1), 0.1, 300, 10, 300, false, seconds)
	if soak.Most(true, false) {
		sharetest.ManyShares(t, spreadStores(server, 2), 0.35, 300, 10, 300, false, seconds)
		sharetest.ManyShares(t, spreadStores(server, 1), 0.1, 300, 10, 300, true, seconds)
		sharetest.ManyShares(t, spreadStores(server, 1), 0.1, 1000, 3, 1000, false, seconds)
	}
}

// TestP5_LapsedOffers: the shares of a program whose callers come late, so that what they are offered lapses, have no more than those of others.
func TestP5_LapsedOffers(t *testing.T) {
	soak.WithoutRace(t)
	sharetest.ManyShares(t, spreadStores(redistest.Shared(t), 3), 0.1, 101, 10, 300, false, 40)
}

// TestP5_OneByOne: a share with one caller at a time waits for what is booked, a horizon, and for its turn, behind one start of the heap. Its call
// comes with those of others, up to 100 ms later.
func TestP5_OneByOne(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	const seconds = 40
	for _, rate := range soak.Most([]int{20, 40, 100, 1000}, []int{20, 40}) {
		single, _ := sharetest.OneByOne(t, spreadStores(server, 1), rate, 1, 100, seconds)
		t.Logf("%d/s: %.1f starts a second", rate, float64(single)/seconds)
		require.GreaterOrEqual(t, float64(single), seconds/(0.35+3*1.035/float64(rate)))
	}
}

// TestP5_FairBound: what two shares that always have callers start, over their weights, differs by at most one caller of each and two windows'
// worth, because the room of a horizon is dealt at once and callers come when they are called.
func TestP5_FairBound(t *testing.T) {
	soak.WithoutRace(t)
	server := redistest.Shared(t)
	for _, p := range []struct {
		nodes         int
		listens       bool
		maxCost       int
		windows       float64
		rounds, quick int
	}{
		{1, false, 3, 2, 40, 4},
		{1, false, 20, 2, 40, 10},
		{3, true, 20, 2, 40, 10},
		{3, false, 20, 12, 40, 4},
	} {
		t.Run(fmt.Sprintf("%d programs, listens %v, costs to %d", p.nodes, p.listens, p.maxCost), func(t *testing.T) {
			newStore := func(t *testing.T) store.Store { return newSpread(t, server, p.nodes, p.listens) }
			for seed := range uint64(soak.Most(p.rounds, p.quick)) {
				sharetest.FairBound(t, newStore, seed, p.maxCost, p.windows)
			}
		})
	}
}
