package ledger_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// TestP1_TheShortWayIsTheLongWay: random bookings in random rows, by both ways. The short way gives
// the same grant and the same row, or does nothing, and it takes most of what is plain.
func TestP1_TheShortWayIsTheLongWay(t *testing.T) {
	soak.WithoutRace(t)
	var all, taken, plain tally
	for seed := range uint64(soak.Seeds(1500, 300)) {
		h := newHistory(seed)
		for range 500 {
			h.step()
			b, rows := h.booking(), h.choose()
			all.count(b)
			grant, booked := longWay(t, h.now, b, rows)
			if grant.OK && grant.Wait == 0 && grant.HeldBy == store.NotHeld {
				plain.count(b)
			}
			if tryShort(t, seed, h.now, b, rows, grant, booked) {
				taken.count(b)
			}
			h.adopt(booked, grant)
		}
	}
	t.Log("all", all, "start now", plain, "by the short way", taken)
	require.Greater(t, taken.one, all.one/4)
	require.Greater(t, taken.several, all.several/20)
	require.Greater(t, taken.one, plain.one/2)
	require.Greater(t, taken.several, plain.several/2)
}

// both books at a time by both ways, compares, and returns the row and whether the short way was taken.
func both(t *testing.T, now int64, c store.Charge, row *ledger.Row) (*ledger.Row, bool) {
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1}
	grant, booked := longWay(t, now, b, []*ledger.Row{row})
	taken := tryShort(t, 0, now, b, []*ledger.Row{row}, grant, booked)
	return booked[0], taken
}

// TestP10_TheShortWayBoundsARow: it joins entries of a row that is as large as it may be.
func TestP10_TheShortWayBoundsARow(t *testing.T) {
	const per = 2000 * time.Hour
	c, row := charge(store.SlidingWindow(min(1<<40, math.MaxInt), per)), new(ledger.Row)
	c.Cost = min(1<<32, math.MaxInt>>8)
	for i := range int64(256) {
		var taken bool
		row, taken = both(t, begin+i*ledger.Micros(per)/256, c, row)
		require.True(t, taken)
	}
	entries, _ := row.Size()
	require.Less(t, entries, 129-strconv.IntSize/64, "the longer numbers of 64 bits fill a row sooner")
}

// TestP1_TheShortWayNeedsHistory: what was forgotten may count in a window that is longer.
func TestP1_TheShortWayNeedsHistory(t *testing.T) {
	for early := range int64(3) {
		short, long := charge(store.PerSecond(1)), charge(store.SlidingWindow(5, 3*time.Second))
		row, taken := both(t, begin, charge(store.PerSecond(2)), new(ledger.Row))
		require.True(t, taken, "a new row")
		row, taken = both(t, begin+second+1, short, row)
		require.True(t, taken, "what was booked is over")
		_, taken = both(t, begin+3*second+1-early, long, row)
		require.Equal(t, early == 0, taken, "%d µs are missing", early)
	}
}

// TestP3_TheShortWayForgetsALimit: a limit of which no start is left does not hold back the next.
func TestP3_TheShortWayForgetsALimit(t *testing.T) {
	large, small := charge(store.PerSecond(9)), charge(store.PerSecond(2))
	row := new(ledger.Row)
	b := &store.Booking{Charges: []store.Charge{large}}
	grant, booked := longWay(t, begin, b, []*ledger.Row{row})
	ledger.NewRequest(begin, ledger.Node{}, new(ledger.Arrivals), b, booked).Cancel(grant)
	_, taken := both(t, begin+1, small, booked[0])
	require.True(t, taken)
}

// TestP1_TheShortWayOfTwoWindows: one row that two charges have is not plain.
func TestP1_TheShortWayOfTwoWindows(t *testing.T) {
	row := new(ledger.Row)
	b := &store.Booking{Charges: []store.Charge{charge(store.PerSecond(5)), charge(store.PerMinute(9))}}
	rows := []*ledger.Row{row, row}
	grant, booked := longWay(t, begin, b, rows)
	require.False(t, tryShort(t, 0, begin, b, rows, grant, booked))
}

// A tally counts bookings of one charge, and of several.
type tally struct{ one, several int }

func (c *tally) count(b *store.Booking) {
	if len(b.Charges) == 1 {
		c.one++
	} else {
		c.several++
	}
}

// clones copies rows; one that is there twice is so in the copy.
func clones(rows []*ledger.Row) (all []*ledger.Row) {
	made := make(map[*ledger.Row]*ledger.Row)
	for _, r := range rows {
		if made[r] == nil {
			made[r] = r.Clone()
		}
		all = append(all, made[r])
	}
	return all
}

// longWay books in copies of rows, and returns them; a grant of nothing if that is not decided.
func longWay(t *testing.T, now int64, b *store.Booking, rows []*ledger.Row) (store.Grant, []*ledger.Row) {
	rows = clones(rows)
	q := ledger.NewRequest(now, ledger.Node{}, new(ledger.Arrivals), b, rows)
	if !q.BookNow() {
		return store.Grant{}, rows
	}
	if q.Grant.OK && q.Grant.Wait == 0 && !q.Waits && !q.HasNews() {
		return *q.Grant, rows
	}
	g := *q.Grant
	g.Age = 1 // nothing that the short way may do
	return g, rows
}

// tryShort books in copies of rows by the short way, and compares.
func tryShort(t *testing.T, seed uint64, now int64, b *store.Booking, rows []*ledger.Row, grant store.Grant, booked []*ledger.Row) bool {
	mine, g := clones(rows), store.Grant{}
	taken := ledger.BookShort(now, b, mine, &g)
	if !taken {
		grant, booked = store.Grant{}, rows
	}
	if !reflect.DeepEqual(grant, g) {
		require.Equal(t, grant, g, "seed %d: the grant of %+v", seed, b)
	}
	for i := range rows {
		if !reflect.DeepEqual(booked[i], mine[i]) {
			require.Equal(t, booked[i], mine[i], "seed %d: row %d of %+v", seed, i, b)
		}
	}
	return taken
}

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
