package ledger

import (
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Request is one step: a booking, and the rows of its charges. The store fills in the
// first fields, opens each search with its row, and calls one method, which changes the rows
// and leaves its answer in the last fields. Two charges must not have one budget.
type Request struct {
	Now      int64 // microseconds of the store's clock
	Node     Node
	Arrivals *Arrivals
	Booking  *throttle.Booking // is only read
	Searches []Search          // one for each charge

	// Grant is the answer to a booking, without Ready and Turn.
	Grant *throttle.Grant

	// Waits says that the caller has got a place in line: if Grant.Mark is not 0 in that
	// for the slots of the charge at Grant.Held, named by -Mark, else in the line that its
	// Waiter stands in.
	Waits bool

	News *News
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

// A Place names the place of a waiter in the line of a budget.
type Place struct {
	Key     Key
	Arrival int64
	Node    int64
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
	q.Searches[i].open(&q.Booking.Charges[i], q.Booking.Spread, q.Now, r)
}

func (s *Search) open(c *throttle.Charge, spread time.Duration, now int64, r *Row) {
	s.rule.set(c, spread)
	if s.rule.kind == throttle.KindUnlimited && s.passBy(r, now) {
		return
	}
	s.row = r
	r.advance(now, &s.rule)
	s.free = s.rule.kind == throttle.KindUnlimited && r.isOpen(now)
	if s.rule.kind == throttle.KindConcurrency && r.slots == nil {
		r.slots = new(slots)
	}
}

// NewRequest returns a request for a booking whose rows are given in the order of its
// charges.
func NewRequest(now int64, by Node, a *Arrivals, b *throttle.Booking, rows []*Row) *Request {
	q := &Request{Now: now, Node: by, Arrivals: a, Booking: b, Searches: make([]Search, len(rows)), Grant: new(throttle.Grant), News: new(News)}
	for i, r := range rows {
		q.Open(i, r)
	}
	return q
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
		s.setAside(func(p place) { q.News.Called = append(q.News.Called, Place{q.key(i), p.arrival, p.node}) })
	}
}

// moved tells of the lines of the request's rows.
func (q *Request) moved() {
	for i := range q.Searches {
		if q.Searches[i].row.queue != nil {
			q.News.Moved = append(q.News.Moved, q.key(i))
		}
	}
}

// useless tells of starts in the i-th charge's row.
func (q *Request) useless(i int, from, before int64, lifted bool) {
	q.News.Useless = append(q.News.Useless, Useless{q.key(i), from, before, lifted})
}
