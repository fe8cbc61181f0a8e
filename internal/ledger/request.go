package ledger

import (
	"sync/atomic"

	"github.com/fleetthrottle/throttle/store"
)

// A Request is one step: a booking, and the rows of its charges. The store fills in the
// first fields, opens each search with its row, and calls one method, which changes the rows
// and leaves its answer in the last fields. Charges of one budget have the same row.
type Request struct {
	Now      int64 // microseconds of the store's clock
	Node     Node
	Arrivals *Arrivals
	Booking  *store.Booking // is only read
	Searches []Search       // one for each charge

	// SummonsWaiters says that waiters are called right before their starts, so that their horizon may be nearer than the distance between two
	// starts: see store.Traits.
	SummonsWaiters bool

	// Bounded says that rows are kept as bytes, which tell a number of shares apart: a caller of another share is refused, as
	// Grant.Shares says.
	Bounded bool

	// Grant is the answer to a booking, without Ready and Turn.
	Grant *store.Grant

	// Waits says that the caller has got a place in line: if Grant.Handle names one in that
	// for the slots of the charge at Grant.HeldBy, else in the line that its Waiter stands
	// in.
	Waits bool

	news *News // nil: none

	early    int64 // the start at which a waiter is served before others that came earlier; 0: it is the first. See Pass
	earlyKey Key   // the budget in whose line it is

	needsSlots bool // a charge is one of Concurrency
}

// News is what a request has changed for others. Its lists are in the order in which
// waiters are to be told.
type News struct {
	Called  []Place   // waiters for slots whose turn it is: they book again
	Useless []Useless // starts that may not be used, or need not
	Closed  []Closed  // budgets that are closed: some waiters cannot wait for so long
	Moved   []Key     // budgets in whose line a start may be nearer now: see Due
}

// Arrivals orders the waiters of one store: each gets a number that none had before, and
// that follows the clock, so that those of several stores are about in order too.
type Arrivals struct{ last atomic.Int64 }

func (a *Arrivals) next(now int64) int64 {
	for {
		last := a.last.Load()
		if next := max(last+1, now); a.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// Useless are booked starts, From a time on, Before another, by their marks. Those that are
// Lifted need not be kept: there may be an earlier start.
type Useless struct {
	Key          Key
	From, Before int64
	Lifted       bool
}

// Closed is a budget that is closed until a time.
type Closed struct {
	Key   Key
	Until int64
}

// Open makes the search of the i-th charge ready: r is its row, which may be nil for an Unlimited
// charge that has none.
func (q *Request) Open(i int, r *Row) {
	s := &q.Searches[i]
	s.rule.set(&q.Booking.Charges[i], q.Booking.Spread)
	if s.rule.peak == 0 && s.passBy(r, q.Now) {
		return
	}
	live := len(r.leases)
	s.row = r
	r.advance(q.Now, &s.rule)
	switch {
	case s.rule.peak == 0:
		s.free = r.isOpen(q.Now)
	case s.rule.slots:
		if q.needsSlots = true; r.slots == nil {
			r.slots = new(slots)
		}
	}
	spoke := r.spoke(q.Node.ID)
	if lapsed := r.lapseSlots(); lapsed || spoke || len(r.leases) < live {
		q.setAside(i) // what a dead node held is free, and what was set aside for a silent one
	}
}

// begin lets a search look for starts from a time on.
func (q *Request) begin(s *Search, from int64) {
	s.from, s.horizon = from, Micros(q.Booking.Horizon)
	starts := 0
	for i := range q.Searches {
		if o := &q.Searches[i]; !o.rule.slots && !o.free {
			starts++
		}
	}
	s.single = starts == 1
	s.steady = q.SummonsWaiters && len(q.Searches) == 1 && q.Booking.Charges[0].Share.ID != 0 && s.row.queue != nil && s.isBrief()
}

// isBrief reports whether the horizon may hold no start beside the next one.
func (s *Search) isBrief() bool {
	distance := s.rule.span / max(1, s.rule.most)
	if s.rule.n > windowParts {
		distance = partOf(s.rule.span)
	}
	return 0 < s.horizon && s.horizon < 2*distance
}

// NewRequest returns a request for a booking whose rows are given in the order of its
// charges.
func NewRequest(now int64, by Node, a *Arrivals, b *store.Booking, rows []*Row) *Request {
	q := &Request{Now: now, Node: by, Arrivals: a, Booking: b, Searches: make([]Search, len(rows)), Grant: new(store.Grant)}
	for i, r := range rows {
		q.Open(i, r)
	}
	return q
}

// News returns what the request has changed for others.
func (q *Request) News() News {
	if q.news == nil {
		return News{}
	}
	return *q.news
}

// HasNews reports whether the request has changed anything for others.
func (q *Request) HasNews() bool { return q.news != nil }

// note returns the news, to be added to.
func (q *Request) note() *News {
	if q.news == nil {
		q.news = new(News)
	}
	return q.news
}

// key is the budget of the i-th charge.
func (q *Request) key(i int) Key { return q.Booking.Charges[i].Budget.Key }

// row returns the row of a budget; nil if no charge has it.
func (q *Request) row(key Key) *Row {
	for i := range q.Searches {
		if q.key(i) == key {
			return q.Searches[i].row
		}
	}
	return nil
}

// setAside calls waiters for slots, as far as there is room in the i-th charge's row.
func (q *Request) setAside(i int) {
	if s := q.Searches[i].row.slots; s != nil {
		s.setAside(func(p place) {
			q.Searches[i].row.ask(p.node, q.Now)
			q.note().Called = append(q.note().Called, Place{q.key(i), p.arrival, p.node})
		})
	}
}

// moved tells of the lines of the request's rows.
func (q *Request) moved() {
	for i := range q.Searches {
		if r := q.Searches[i].row; r.queue != nil || r.Wants() {
			q.note().Moved = append(q.note().Moved, q.key(i))
		}
	}
}

// useless tells of starts in the i-th charge's row.
func (q *Request) useless(i int, from, before int64, lifted bool) {
	q.note().Useless = append(q.note().Useless, Useless{q.key(i), from, before, lifted})
}
