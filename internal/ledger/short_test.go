package ledger_test

import (
	"math"
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
	for seed := range uint64(soak.Most(6000, 300)) {
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
