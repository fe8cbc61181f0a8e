package memstore

import (
	"context"
	"math/bits"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
	"github.com/fleetthrottle/throttle/internal/virtual"
	"github.com/fleetthrottle/throttle/store"
)

// A Store is a [store.Store] that keeps budgets in memory. Make one with [New]. It is safe for
// concurrent use; different budgets rarely share a lock. There is nothing to
// close.
type Store struct {
	clock    clock
	arrivals ledger.Arrivals
	shards   [shardCount]shard

	appointments appointments
}

// New returns an empty store. Its clock is the machine's, made monotonic.
func New() *Store {
	s := newStore()
	s.clock.start()
	return s
}

// The commands plan and simulate have a store whose time is that of a simulation. Its constructor is no part of what
// this package exports, because other programs cannot name the clock.
func init() {
	virtual.NewStore = func(c *virtual.Clock) store.Store {
		s := newStore()
		s.clock.virtual = c
		return s
	}
}

// newStore returns an empty store without a clock.
func newStore() *Store {
	s := new(Store)
	for i := range s.shards {
		s.shards[i].budgets = make(map[ledger.Key]*budget)
	}
	return s
}

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return ledger.Reader(s.read).Status(ctx, c)
}

// read implements [ledger.Reader].
func (s *Store) read(c store.Charge, read func(*ledger.Request)) {
	sh := s.shard(&c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var r *ledger.Row
	if b := sh.budgets[c.Budget.Key]; b != nil {
		r = &b.Row
	}
	read(ledger.NewRequest(s.clock.now(), ledger.Node{}, nil, only(c), []*ledger.Row{r.Clone()}))
}

// only is a booking of one charge.
func only(c store.Charge) *store.Booking {
	return &store.Booking{Charges: []store.Charge{c}}
}

func (s *Store) shard(b *store.Budget) *shard { return &s.shards[b.Key[0]] }

// keep makes the row of a budget that is about to be closed.
func (s *Store) keep(c store.Charge) {
	sh := s.shard(&c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.budget(c.Budget.Key, s.clock.now())
}

// audience returns the audience of a budget, a new one if there is none. The shard is locked.
func (s *Store) audience(key ledger.Key) *audience {
	b := s.shards[key[0]].budget(key, s.clock.now())
	if b.audience == nil {
		b.audience = &audience{
			watches: make(node.Watches),
			slots:   make(map[int64]chan struct{}),
			line:    make(map[int64]*waiter),
		}
	}
	return b.audience
}

// A shardSet is a set of shards, one bit each. Whoever locks several shards locks them in the order of the set.
type shardSet [shardCount / 64]uint64

// shardsOf returns the shards of all charges.
func shardsOf(charges []store.Charge) (set shardSet) {
	for i := range charges {
		k := charges[i].Budget.Key[0]
		set[k/64] |= 1 << (k % 64)
	}
	return set
}

// with returns the shards of both sets.
func (set shardSet) with(other shardSet) shardSet {
	for w, word := range other {
		set[w] |= word
	}
	return set
}

// each calls do with the number of each shard of the set, in ascending order.
func (set *shardSet) each(do func(i int)) {
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			do(w*64 + bits.TrailingZeros64(word))
		}
	}
}

// lock locks the rows of all charges.
func (s *Store) lock(charges []store.Charge) shardSet {
	set := shardsOf(charges)
	set.each(func(i int) { s.shards[i].mu.Lock() })
	return set
}

// unlock unlocks the rows of shards.
func (s *Store) unlock(set shardSet) {
	set.each(func(i int) { s.shards[i].mu.Unlock() })
}

// lockLines locks the lines of shards. Whoever changes a waiter holds the lines of all charges of its booking. They are
// locked before any rows, and nobody who holds lines locks other lines.
func (s *Store) lockLines(set shardSet) {
	set.each(func(i int) { s.shards[i].lines.Lock() })
}

// unlockLines unlocks the lines of shards.
func (s *Store) unlockLines(set shardSet) {
	set.each(func(i int) { s.shards[i].lines.Unlock() })
}

// changeRows calls do with a request for a booking, in one atomic step, and tells the watches and waiters
// that must hear of the change. It returns the same news.
func (s *Store) changeRows(b *store.Booking, do func(*ledger.Request)) ledger.News {
	q := ledger.Request{SummonsWaiters: true, Booking: b, Arrivals: &s.arrivals, Grant: new(store.Grant), Searches: make([]ledger.Search, len(b.Charges))}
	held := s.lock(b.Charges)
	defer s.unlock(held)
	s.open(&q)
	do(&q)
	s.tell(q.News())
	return q.News()
}

// open makes a request ready. Its shards are locked.
func (s *Store) open(q *ledger.Request) {
	q.Now = s.clock.now()
	var few [ledger.Few]*ledger.Row
	for i, r := range s.rows(few[:0], q.Booking.Charges, q.Now) {
		q.Open(i, r)
	}
}

// rows appends the rows of charges, whose shards are locked. It sweeps idle rows away before it looks
// rows up, so that it returns no row that is swept away.
func (s *Store) rows(all []*ledger.Row, charges []store.Charge, now int64) []*ledger.Row {
	for i := range charges {
		if sh := s.shard(&charges[i].Budget); sh.isDue(now) {
			sh.sweep(now, charges)
		}
	}
	for i := range charges {
		all = append(all, s.shard(&charges[i].Budget).row(&charges[i], now))
	}
	return all
}

// standBy sets the Ready of the grant to a request that got a place in the line for slots. Its shards are
// locked.
func (s *Store) standBy(q *ledger.Request) {
	if place := q.Grant.Handle.Place; q.Waits && place != 0 {
		ready := make(chan struct{})
		s.audience(q.Booking.Charges[q.Grant.HeldBy].Budget.Key).slots[place] = ready
		q.Grant.Ready = ready
	}
}

// tell wakes the waiters for slots that a request has called, and warns the watches over starts that the
// request has made useless. The shards of all these budgets are locked.
func (s *Store) tell(n ledger.News) {
	for _, p := range n.Called {
		s.clock.wake(s.shards[p.Key[0]].budgets[p.Key].takeSlotWaiter(p.Arrival))
	}
	for _, u := range n.Useless {
		if b := s.shards[u.Key[0]].budgets[u.Key]; b.audience != nil {
			b.watches.Warn(u)
		}
	}
}
