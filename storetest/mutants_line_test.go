package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A lineMutant breaks one rule of the line. The oracle has no line, so it is made of
// memstore. The checks whose names begin with the prefix must notice, and so must the
// random runs, unless blind says why not.
type lineMutant struct {
	name   string
	prefix string
	blind  string
	store  func() throttle.Store
}

// A brokenLine is a store of which some methods were replaced.
type brokenLine struct {
	throttle.Store
	book   func(s throttle.Store, b *throttle.Booking) throttle.Grant
	cancel func(s throttle.Store, b *throttle.Booking, g throttle.Grant)
	settle func(s throttle.Store, b *throttle.Booking, g throttle.Grant, costs []int)
	status func(st *throttle.Status)
}

func (s brokenLine) Book(_ context.Context, b *throttle.Booking) (throttle.Grant, error) {
	if s.book == nil {
		return plainBook(s.Store, b), nil
	}
	return s.book(s.Store, b), nil
}

func (s brokenLine) Cancel(b *throttle.Booking, g throttle.Grant) {
	if s.cancel == nil {
		s.Store.Cancel(b, g)
		return
	}
	s.cancel(s.Store, b, g)
}

func (s brokenLine) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	if s.settle == nil {
		return s.Store.Settle(ctx, b, g, costs)
	}
	s.settle(s.Store, b, g, costs)
	return nil
}

func (s brokenLine) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	st, err := s.Store.Status(ctx, c)
	if s.status != nil {
		s.status(&st)
	}
	return st, err
}

// plainBook books as the store does.
func plainBook(s throttle.Store, b *throttle.Booking) throttle.Grant {
	g, _ := s.Book(context.Background(), b)
	return g
}

// brokenBy makes a fresh store that is broken so.
func brokenBy(broken brokenLine) func() throttle.Store {
	return func() throttle.Store {
		s := broken
		s.Store = memstore.New()
		return s
	}
}

// wanting books something that the caller did not ask for.
func wanting(change func(*throttle.Booking)) func() throttle.Store {
	return brokenBy(brokenLine{book: func(s throttle.Store, b *throttle.Booking) throttle.Grant {
		other := *b
		change(&other)
		return plainBook(s, &other)
	}})
}

// inLine says something else of a place in line.
func inLine(change func(g *throttle.Grant)) func() throttle.Store {
	return brokenBy(brokenLine{book: func(s throttle.Store, b *throttle.Booking) throttle.Grant {
		g := plainBook(s, b)
		if g.Ready != nil {
			change(&g)
		}
		return g
	}})
}

var lineMutants = []lineMutant{
	{"books beyond the horizon", "Store_HorizonBooks", "the starts are the same where nothing changes", wanting(func(b *throttle.Booking) {
		b.Horizon = 0
	})},
	{"a horizon twice as far", "Store_HorizonBooks", "it is a matter of degree", wanting(func(b *throttle.Booking) {
		b.Horizon *= 2
	})},
	{"a horizon that is a little too near", "Store_HorizonOf", "it is a matter of degree", wanting(func(b *throttle.Booking) {
		b.Horizon = max(0, b.Horizon-tick)
	})},
	{"priority ignored", "P5_LineByPriority", "", wanting(func(b *throttle.Booking) {
		b.Priority = throttle.Normal
	})},
	{"priority turned around", "P5_LineByPriority", "", wanting(func(b *throttle.Booking) {
		b.Priority = -b.Priority
	})},
	{"low is as good as normal", "P5_LineByPriority", "", wanting(func(b *throttle.Booking) {
		b.Priority = max(b.Priority, throttle.Normal)
	})},
	{"arrival forgotten", "P5_LineReturns", "", wanting(func(b *throttle.Booking) {
		b.Returns = false
		if b.Instead != (throttle.Handle{}) {
			b.Turn = nil
		}
	})},
	{"newcomers pass", "P5_Line", "", wanting(func(b *throttle.Booking) {
		b.Returns = true
	})},
	{"refuses every caller that would stand in line", "Store_Horizon", "a refused caller does not wait", brokenBy(brokenLine{
		book: func(s throttle.Store, b *throttle.Booking) throttle.Grant {
			g := plainBook(s, b)
			if g.Ready != nil && b.MaxWait >= 0 {
				s.Cancel(b, g)
				g.Ready = nil
			}
			return g
		},
	})},
	{"lines up a caller that does not wait", "Store_HorizonAnd", "", wanting(func(b *throttle.Booking) {
		if b.MaxWait == 0 {
			b.MaxWait = -1
		}
	})},
	{"MaxWait ignored in line", "Store_HorizonAndMaxWait", "refusals are not compared", wanting(func(b *throttle.Booking) {
		if b.MaxWait > 0 {
			b.MaxWait = -1
		}
	})},
	{"no guess", "Store_Horizon", "guesses are not compared", inLine(func(g *throttle.Grant) { g.Wait = 0 })},
	{"wrong holder", "Store_Horizon", "holders are not compared", inLine(func(g *throttle.Grant) { g.Held = -1 })},
	{"no turn", "Store_Horizon", "", inLine(func(g *throttle.Grant) { g.Turn = nil })},
	{"penalty not told", "P11_LineOfAClosed", "what is said is not compared", inLine(func(g *throttle.Grant) { g.Paused = false })},
	{"calls at once", "P5_Line", "", inLine(func(g *throttle.Grant) {
		called := make(chan struct{})
		close(called)
		g.Ready, g.Turn = called, nil
	})},
	{"leavers stay", "P7_Line", "", brokenBy(brokenLine{cancel: func(s throttle.Store, b *throttle.Booking, g throttle.Grant) {
		if g.OK {
			s.Cancel(b, g)
		}
	}})},
	{"starts of leavers stay", "P7_Line", "what is near is little", brokenBy(brokenLine{cancel: func(s throttle.Store, b *throttle.Booking, g throttle.Grant) {
		if !g.OK {
			s.Cancel(b, g)
		}
	}})},
	{"refunds are late", "P7_LineAndRefund", "the end is about the same", brokenBy(brokenLine{
		settle: func(throttle.Store, *throttle.Booking, throttle.Grant, []int) {},
	})},
	{"the line is not counted", "Store_StatusCounts", "only the end is compared", brokenBy(brokenLine{status: func(st *throttle.Status) {
		st.Waiting = min(st.Waiting, 8)
	}})},
	{"the line is booked", "Store_StatusCounts", "only the end is compared", brokenBy(brokenLine{status: func(st *throttle.Status) {
		st.Booked = st.Waiting
	}})},
	{"the line waits for nothing", "Store_StatusWaits", "only the end is compared", brokenBy(brokenLine{status: func(st *throttle.Status) {
		st.Wait = min(st.Wait, horizon)
	}})},
	{"a waiter is lost", "P", "", losing(9)},
	{"a waiter is called late", "P", "", delaying()},
	{"out of order", "P5_LineOf", "", shuffling()},
}

// losing never calls one in so many.
func losing(one int64) func() throttle.Store {
	return func() throttle.Store {
		var places atomic.Int64
		return brokenLine{Store: memstore.New(), book: func(s throttle.Store, b *throttle.Booking) throttle.Grant {
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
func delaying() func() throttle.Store {
	return brokenBy(brokenLine{book: func(s throttle.Store, b *throttle.Booking) throttle.Grant {
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
func shuffling() func() throttle.Store {
	return func() throttle.Store {
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(1, 1))
		return brokenLine{Store: memstore.New(), book: func(s throttle.Store, b *throttle.Booking) throttle.Grant {
			other := *b
			mu.Lock()
			defer mu.Unlock()
			other.Priority = throttle.Priority(rng.IntN(3) - 1)
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
