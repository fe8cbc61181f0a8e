package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A lineMutant breaks one rule of the line. The oracle has no line, so it is made of
// memstore. The checks whose names begin with the prefix must notice, and so must the
// random runs, unless blind says why not.
type lineMutant struct {
	name   string
	prefix string
	blind  string
	store  func() store.Store
}

// A brokenLine is a store of which some methods were replaced.
type brokenLine struct {
	store.Store
	book   func(s store.Store, b *store.Booking) store.Grant
	cancel func(s store.Store, b *store.Booking, g store.Grant)
	settle func(s store.Store, b *store.Booking, g store.Grant, costs []int)
	status func(st *store.Status)
}

func (s brokenLine) Book(_ context.Context, b *store.Booking) (store.Grant, error) {
	if s.book == nil {
		return plainBook(s.Store, b), nil
	}
	return s.book(s.Store, b), nil
}

func (s brokenLine) Cancel(b *store.Booking, g store.Grant) {
	if s.cancel == nil {
		s.Store.Cancel(b, g)
		return
	}
	s.cancel(s.Store, b, g)
}

func (s brokenLine) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if s.settle == nil {
		return s.Store.Settle(ctx, b, g, costs)
	}
	s.settle(s.Store, b, g, costs)
	return nil
}

func (s brokenLine) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	st, err := s.Store.Status(ctx, c)
	if s.status != nil {
		s.status(&st)
	}
	return st, err
}

// plainBook books as the store does.
func plainBook(s store.Store, b *store.Booking) store.Grant {
	g, _ := s.Book(context.Background(), b)
	return g
}

// brokenBy makes a fresh store that is broken so.
func brokenBy(broken brokenLine) func() store.Store {
	return func() store.Store {
		s := broken
		s.Store = memstore.New()
		return s
	}
}

// wanting books something that the caller did not ask for.
func wanting(change func(*store.Booking)) func() store.Store {
	return brokenBy(brokenLine{book: func(s store.Store, b *store.Booking) store.Grant {
		other := *b
		change(&other)
		return plainBook(s, &other)
	}})
}

// inLine says something else of a place in line.
func inLine(change func(g *store.Grant)) func() store.Store {
	return brokenBy(brokenLine{book: func(s store.Store, b *store.Booking) store.Grant {
		g := plainBook(s, b)
		if g.Ready != nil {
			change(&g)
		}
		return g
	}})
}

var lineMutants = []lineMutant{
	{"books beyond the horizon", "Store_HorizonBooks", "the starts are the same where nothing changes", wanting(func(b *store.Booking) {
		b.Horizon = 0
	})},
	{"a horizon twice as far", "Store_HorizonBooks", "it is a matter of degree", wanting(func(b *store.Booking) {
		b.Horizon *= 2
	})},
	{"a horizon that is a little too near", "Store_HorizonOf", "it is a matter of degree", wanting(func(b *store.Booking) {
		b.Horizon = max(0, b.Horizon-tick)
	})},
	{"priority ignored", "P5_LineByPriority", "", wanting(func(b *store.Booking) {
		b.Priority = store.PriorityNormal
	})},
	{"priority turned around", "P5_LineByPriority", "", wanting(func(b *store.Booking) {
		b.Priority = -b.Priority
	})},
	{"low is as good as normal", "P5_LineByPriority", "", wanting(func(b *store.Booking) {
		b.Priority = max(b.Priority, store.PriorityNormal)
	})},
	{"arrival forgotten", "P5_LineReturns", "", wanting(func(b *store.Booking) {
		b.Returns = false
		if b.Instead != (store.Handle{}) {
			b.Turn = nil
		}
	})},
	{"newcomers pass", "P5_Line", "", wanting(func(b *store.Booking) {
		b.Returns = true
	})},
	{"refuses every caller that would stand in line", "Store_Horizon", "a refused caller does not wait", brokenBy(brokenLine{
		book: func(s store.Store, b *store.Booking) store.Grant {
			g := plainBook(s, b)
			if g.Ready != nil && b.MaxWait >= 0 {
				s.Cancel(b, g)
				g.Ready = nil
			}
			return g
		},
	})},
	{"lines up a caller that does not wait", "Store_HorizonAnd", "", wanting(func(b *store.Booking) {
		if b.MaxWait == 0 {
			b.MaxWait = -1
		}
	})},
	{"MaxWait ignored in line", "Store_HorizonAndMaxWait", "refusals are not compared", wanting(func(b *store.Booking) {
		if b.MaxWait > 0 {
			b.MaxWait = -1
		}
	})},
	{"no guess", "Store_Horizon", "guesses are not compared", inLine(func(g *store.Grant) { g.Wait = 0 })},
	{"wrong holder", "Store_Horizon", "holders are not compared", inLine(func(g *store.Grant) { g.HeldBy = -1 })},
	{"no turn", "Store_Horizon", "", inLine(func(g *store.Grant) { g.Turn = nil })},
	{"penalty not told", "P11_LineOfAClosed", "what is said is not compared", inLine(func(g *store.Grant) { g.Paused = false })},
	{"calls at once", "P5_Line", "", inLine(func(g *store.Grant) {
		called := make(chan struct{})
		close(called)
		g.Ready, g.Turn = called, nil
	})},
	{"leavers stay", "P7_Line", "", brokenBy(brokenLine{cancel: func(s store.Store, b *store.Booking, g store.Grant) {
		if g.OK {
			s.Cancel(b, g)
		}
	}})},
	{"starts of leavers stay", "P7_Line", "what is near is little", brokenBy(brokenLine{cancel: func(s store.Store, b *store.Booking, g store.Grant) {
		if !g.OK {
			s.Cancel(b, g)
		}
	}})},
	{"refunds are late", "P7_LineAndRefund", "the end is about the same", brokenBy(brokenLine{
		settle: func(store.Store, *store.Booking, store.Grant, []int) {},
	})},
	{"the line is not counted", "Store_StatusCounts", "only the end is compared", brokenBy(brokenLine{status: func(st *store.Status) {
		st.Waiting = min(st.Waiting, 8)
	}})},
	{"the line is booked", "Store_StatusCounts", "only the end is compared", brokenBy(brokenLine{status: func(st *store.Status) {
		st.Booked = st.Waiting
	}})},
	{"the line waits for nothing", "Store_StatusWaits", "only the end is compared", brokenBy(brokenLine{status: func(st *store.Status) {
		st.Wait = min(st.Wait, horizon)
	}})},
	{"a waiter is lost", "P", "", losing(9)},
	{"a waiter is called late", "P", "", delaying()},
	{"out of order", "P5_LineOf", "", shuffling()},
}

// losing never calls one in so many.
func losing(one int64) func() store.Store {
	return func() store.Store {
		var places atomic.Int64
		return brokenLine{Store: memstore.New(), book: func(s store.Store, b *store.Booking) store.Grant {
			g := plainBook(s, b)
			if g.Ready != nil {
				if places.Add(1)%one == 0 {
					g.Ready = make(chan struct{})
				}
			}
			return g
		}}
	}
}

// delaying lets 300 ms pass between the end of a wait and the start.
func delaying() func() store.Store {
	return brokenBy(brokenLine{book: func(s store.Store, b *store.Booking) store.Grant {
		other := *b
		if b.Turn != nil {
			other.NotBefore, other.Charges = horizon+300*ms, slices.Clone(b.Charges)
			for i := range other.Charges {
				other.Charges[i].Jitter += tick // not what is booked
			}
		}
		return plainBook(s, &other)
	}})
}

// shuffling gives a place in line to a caller as if it were another's.
func shuffling() func() store.Store {
	return func() store.Store {
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(1, 1))
		return brokenLine{Store: memstore.New(), book: func(s store.Store, b *store.Booking) store.Grant {
			other := *b
			mu.Lock()
			defer mu.Unlock()
			other.Priority = store.Priority(rng.IntN(3) - 1)
			return plainBook(s, &other)
		}}
	}
}

func TestEveryMutantOfTheLineIsCaughtByName(t *testing.T) {
	soak.WithoutRace(t)
	for _, m := range lineMutants {
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, vectorsOf("lines"), m.prefix, m.store), "no check %s… failed", m.prefix)
		})
	}
}

func TestEveryMutantOfTheLineIsCaughtAtRandom(t *testing.T) {
	soak.WithoutRace(t)
	for _, m := range lineMutants {
		if m.blind != "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			require.True(t, caught(t, randomLineChecks(), "P5_RandomLine", m.store))
		})
	}
}
