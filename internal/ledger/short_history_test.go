package ledger_test

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A history is that of a few rows with their limits.
type history struct {
	r       *rand.Rand
	now     int64
	rows    []*ledger.Row
	callers []callers
	limits  [][]store.Charge // of each row, those that its callers have
	used    []int            // which of the limits of each row is in use

	jitter time.Duration
	pause  time.Duration // between two bookings, about
	odd    int           // one of so many operations is no plain booking

	at []int // the rows of the booking
}

func newHistory(seed uint64) *history {
	h := &history{r: rand.New(rand.NewPCG(4, seed)), now: begin}
	h.odd = []int{5, 30, 200, 2000}[h.r.IntN(4)]
	per := time.Duration(1 + h.r.Int64N(int64([]time.Duration{time.Millisecond, time.Second, time.Hour}[h.r.IntN(3)])))
	h.jitter = time.Duration(h.r.IntN(2) * h.r.IntN(1_000_000))
	h.pause = per / time.Duration(1+h.r.IntN(200))
	for range 6 {
		row := new(ledger.Row)
		if h.r.IntN(20) == 0 {
			row = crowd()
		}
		limits := []store.Charge{charge(store.SlidingWindow(h.n(), per)), charge(store.SlidingWindow(h.n(), per))}
		if h.r.IntN(5) == 0 {
			limits = append(limits, charge(store.SlidingWindow(h.n(), per*3)), charges()[h.r.IntN(len(charges()))])
		}
		h.rows, h.callers = append(h.rows, row), append(h.callers, callers{})
		h.limits, h.used = append(h.limits, limits), append(h.used, 0)
	}
	return h
}

// n is that of a limit, about the number of entries of a row, or of a start for each.
func (h *history) n() int {
	return []int{1 + h.r.IntN(5), 100 + h.r.IntN(60), 100 + h.r.IntN(60), 1000, min(1<<40, math.MaxInt>>1)}[h.r.IntN(5)]
}

// crowd is a row that only counts some of those that wait for its slots.
func crowd() *ledger.Row {
	row := new(ledger.Row)
	var a ledger.Arrivals
	for range 300 {
		b := &store.Booking{Charges: []store.Charge{charge(store.Concurrency(1))}, MaxWait: -1}
		ledger.NewRequest(begin, ledger.Node{}, &a, b, []*ledger.Row{row}).Book(new(ledger.Waiter))
	}
	bytes, err := row.MarshalBinary()
	if err == nil {
		err = row.UnmarshalBinary(bytes)
	}
	if err != nil {
		panic(err)
	}
	return row
}

// step lets time pass, and sometimes does something odd with a row.
func (h *history) step() {
	switch h.r.IntN(60) {
	case 0:
		h.now += h.r.Int64N(6*int64(time.Second)) / 1000
	case 1:
		h.now += ledger.Micros(h.pause) * h.r.Int64N(500)
	case 2:
		h.now = max(h.now, h.edge())
	case 3, 4, 5, 6, 7, 8, 9: // at the same time
	default:
		h.now += h.r.Int64N(2*ledger.Micros(h.pause) + 1)
	}
	if h.r.IntN(40) == 0 {
		i := h.r.IntN(len(h.rows))
		h.used[i] = h.r.IntN(len(h.limits[i]))
	}
	if h.r.IntN(100) == 0 {
		i := h.r.IntN(len(h.rows))
		h.rows[i], h.callers[i] = new(ledger.Row), callers{}
	}
	if h.r.IntN(h.odd) > 0 {
		return
	}
	if h.r.IntN(30) == 0 {
		h.now -= h.r.Int64N(4 * ledger.Micros(h.pause))
	}
	i := h.r.IntN(len(h.rows))
	h.callers[i].act(h.rows[i], h.now, h.charge(i), h.r)
	if h.r.IntN(4) == 0 {
		h.disperse(i)
	}
}

// disperse has all waiters for a row leave.
func (h *history) disperse(i int) {
	q := ledger.NewRequest(h.now, ledger.Node{}, nil, only(h.charge(i)), []*ledger.Row{h.rows[i]})
	for k := range h.callers[i].waiters {
		q.Leave(&h.callers[i].waiters[k])
	}
	h.rows[i].Head(ledger.Key{byte(i)})
}

// edge is a moment at which something may be over in a row, or just before or after.
func (h *history) edge() int64 {
	i := h.r.IntN(3)
	c := h.limits[i][h.r.IntN(len(h.limits[i]))]
	c.Jitter = h.jitter
	t := h.now + int64(ledger.NewRequest(h.now, ledger.Node{}, nil, only(c), []*ledger.Row{h.rows[i].Clone()}).Status().Paused/time.Microsecond)
	switch all := h.callers[i].grants; {
	case t > h.now:
		t += []int64{0, second / 4, ledger.Micros(c.Span()), 2 * ledger.Micros(c.Span())}[h.r.IntN(4)]
	case len(all) > 0:
		t = all[h.r.IntN(len(all))].Handle.Start + ledger.Micros(c.Span())
	}
	return t + h.r.Int64N(3) - 1
}

// rarely is true now and then.
func (h *history) rarely() bool { return h.r.IntN(50) == 0 }

// charge is one for the limit of a row that is in use.
func (h *history) charge(i int) store.Charge {
	c := h.limits[i][h.used[i]]
	c.Budget.Key = ledger.Key{byte(i)}
	if c.Limit.Kind() == store.KindSlidingWindow {
		c.Adaptive, c.Pace = h.r.IntN(3) == 0, time.Duration(h.r.IntN(2))*c.Limit.Per()/time.Duration(c.Limit.N())
	}
	if h.r.IntN(4) == 0 {
		c.Cost = 1 + h.r.IntN(1+c.Limit.Capacity()/(1+h.r.IntN(100)))%c.Limit.Capacity()
	}
	if h.r.IntN(4) == 0 {
		c.KeepFree = h.r.IntN(1+c.Limit.Capacity()/(1+h.r.IntN(100))) % (c.Limit.Capacity() - c.Cost + 1)
	}
	if c.Jitter = h.jitter; h.rarely() && h.r.IntN(h.odd) == 0 {
		c.Jitter = time.Duration(h.r.IntN(3)) * c.Limit.Per() / 10
	}
	c.Shadow = h.rarely()
	return c
}

// booking is one for rows that it chooses.
func (h *history) booking() *store.Booking {
	h.at = h.r.Perm(3)[:1+h.r.IntN(2)*h.r.IntN(3)]
	if h.rarely() {
		h.at = append(h.at, h.at[0])
	}
	if h.rarely() {
		h.at = h.r.Perm(len(h.rows))
	}
	b := &store.Booking{MaxWait: time.Duration(h.r.IntN(3)-1) * h.pause, Horizon: time.Duration(h.r.IntN(4)) * 250 * time.Millisecond}
	for _, i := range h.at {
		b.Charges = append(b.Charges, h.charge(i))
	}
	b.Priority = store.Priority(h.r.IntN(3) - 1)
	if h.r.IntN(4) == 0 {
		b.Spread = time.Duration(h.r.Int64N(int64(h.pause)*2 + 1))
	}
	if h.rarely() {
		b.NotBefore = time.Duration(h.r.IntN(2)) * h.pause
	}
	b.Returns = h.rarely()
	if h.rarely() {
		b.Instead = h.handle()
	}
	return b
}

// handle is that of a grant, or one that only has one of its fields.
func (h *history) handle() store.Handle {
	switch h.r.IntN(7) {
	case 0:
		return store.Handle{Local: true}
	case 1:
		return store.Handle{Node: new(store.Handle)}
	case 2:
		return store.Handle{Stamp: 1}
	case 3:
		return store.Handle{Place: 1}
	case 4:
		return store.Handle{Start: 1}
	}
	if all := h.callers[h.at[0]].grants; len(all) > 0 {
		return all[h.r.IntN(len(all))].Handle
	}
	return store.Handle{}
}

// choose returns the rows of the booking.
func (h *history) choose() (rows []*ledger.Row) {
	for _, i := range h.at {
		rows = append(rows, h.rows[i])
	}
	return rows
}

// adopt goes on with rows as they were booked in.
func (h *history) adopt(booked []*ledger.Row, g store.Grant) {
	for k, i := range h.at {
		h.rows[i] = booked[k]
		if g.OK {
			h.callers[i].grants = append(h.callers[i].grants, g)
		}
	}
}

// only returns a booking of one charge.
func only(c store.Charge) *store.Booking { return &store.Booking{Charges: []store.Charge{c}} }
