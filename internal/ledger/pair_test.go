package ledger_test

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A pair is several stores of one table that take turns to be called by new callers. A
// caller stays with its store.
type pair struct {
	stores []*byteStore

	mu    sync.Mutex
	turns int
}

// A turn is that of one of the stores.
type turn struct {
	store int
	of    throttle.Turn
}

// Book implements [throttle.Store]. Its marks say which store gave them.
func (p *pair) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	k := *b
	i := p.next(&k)
	g, err := p.stores[i].Book(ctx, &k)
	if g.Mark != 0 {
		g.Mark = g.Mark*int64(len(p.stores)) + int64(i)
	}
	if g.Turn != nil {
		g.Turn = turn{i, g.Turn}
	}
	return g, err
}

// next returns the store of a booking, and makes the booking that store's.
func (p *pair) next(b *throttle.Booking) int {
	i := p.owner(b.Instead)
	if b.Instead == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.turns++
		i = p.turns % len(p.stores)
	}
	if b.Instead != 0 {
		b.Instead = (b.Instead - int64(i)) / int64(len(p.stores))
	}
	if t, ok := b.Turn.(turn); ok {
		b.Turn, i = t.of, t.store
	}
	return i
}

// owner returns the store that gave a mark.
func (p *pair) owner(mark int64) int {
	n := int64(len(p.stores))
	return int((mark%n + n) % n)
}

// of returns the store of a grant, and the grant as that gave it.
func (p *pair) of(g throttle.Grant) (*byteStore, throttle.Grant) {
	i := p.owner(g.Mark)
	if t, ok := g.Turn.(turn); ok {
		i, g.Turn = t.store, t.of
	}
	if g.Mark != 0 {
		g.Mark = (g.Mark - int64(i)) / int64(len(p.stores))
	}
	return p.stores[i], g
}

func (p *pair) Cancel(b *throttle.Booking, g throttle.Grant) {
	s, g := p.of(g)
	s.Cancel(b, g)
}

func (p *pair) Release(b *throttle.Booking, g throttle.Grant) {
	s, g := p.of(g)
	s.Release(b, g)
}

func (p *pair) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	s, g := p.of(g)
	return s.Settle(ctx, b, g, costs)
}

func (p *pair) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	s, g := p.of(g)
	return s.Watch(b, g, news)
}

func (p *pair) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	return p.stores[0].Pause(ctx, c, d)
}

func (p *pair) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	_, r.Start = p.of(r.Start)
	return p.stores[1].Refuse(ctx, c, r)
}

func (p *pair) Resume(ctx context.Context, c throttle.Charge) error {
	return p.stores[1].Resume(ctx, c)
}

func (p *pair) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	return p.stores[0].Reconcile(ctx, c, q)
}

func (p *pair) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	return p.stores[1].Status(ctx, c)
}
