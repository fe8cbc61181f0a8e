package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// begin is the time at which rows of these tests begin.
const begin = int64(1_700_000_000_000_000)

// second is one in microseconds.
const second = int64(time.Second / time.Microsecond)

// charge is one of a budget for a limit.
func charge(l store.Limit) store.Charge {
	return store.Charge{Budget: store.Budget{Policy: "p", Key: ledger.Key{1}}, Limit: l, Cost: 1}
}

// charges are of all kinds of limits.
func charges() []store.Charge {
	adaptive := charge(store.PerSecond(40))
	adaptive.Adaptive = true
	leaving := charge(store.Concurrency(5))
	leaving.KeepFree = 2
	paced := charge(store.PerSecond(20))
	paced.Pace = 47500 * time.Microsecond
	return []store.Charge{
		adaptive, leaving, paced, charge(store.SlidingWindow(100_000, time.Minute)), charge(store.FixedWindow(30, time.Second)),
		charge(store.CalendarWindow(1000, store.Month, nil)), charge(store.LeakyBucket(10, time.Second)),
		charge(store.TokenBucket(10, time.Second, 50)), charge(store.Concurrency(3)), charge(store.Unlimited()),
	}
}

// callers are those of a row: the waiters and the grants so far.
type callers struct {
	arrivals ledger.Arrivals
	waiters  []ledger.Waiter
	grants   []store.Grant
	shares   int // of how many shares they are. Zero means that they have none.
}

// act does one operation on a row, as r decides.
func (k *callers) act(row *ledger.Row, now int64, c store.Charge, r *rand.Rand) {
	by := ledger.Node{ID: r.Int64N(3), Lease: 30 * second}
	if k.shares > 0 {
		c.Share = store.Share{ID: uint64(r.IntN(k.shares)) + 1<<52, Weight: r.IntN(9)}
	}
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Horizon: time.Duration(r.IntN(2)) * 750 * time.Millisecond}
	b.Priority = store.Priority(r.IntN(3) - 1)
	q := ledger.NewRequest(now, by, &k.arrivals, b, []*ledger.Row{row})
	var g store.Grant
	if n := len(k.grants); n > 0 {
		g = k.grants[r.IntN(n)]
	}
	switch r.IntN(12) {
	case 0:
		q.Cancel(g)
	case 1:
		q.Settle(g, []int{r.IntN(5)})
	case 2:
		q.Pause(time.Duration(r.IntN(3000)) * time.Millisecond)
	case 3:
		q.Refuse(store.Refusal{Length: time.Second, Ago: time.Millisecond, Start: g})
	case 4:
		q.Reconcile(store.Quota{Left: r.IntN(10), Reset: time.Second})
	case 5:
		q.Resume()
	case 6:
		q.Release()
	case 7:
		if n := len(k.waiters); n > 0 {
			w := &k.waiters[r.IntN(n)]
			if r.IntN(2) == 0 {
				q.Leave(w)
				q.Again(w)
			} else {
				q.GiveUp(w)
			}
		}
	default:
		var w ledger.Waiter
		w.Come(b)
		if q.Book(&w); q.Grant.OK {
			k.grants = append(k.grants, *q.Grant)
		} else if q.Waits {
			k.waiters = append(k.waiters, w)
		}
	}
	row.Wants()
	row.Head(c.Budget.Key)
	ledger.NewRequest(now, by, nil, b, []*ledger.Row{row.Clone()}).Status()
}

// TestP10_RowsRoundTrip: a row is the same after it was bytes, after any operations, and is
// never larger than it may be.
func TestP10_RowsRoundTrip(t *testing.T) {
	soak.WithoutRace(t)
	for i, c := range slices.Concat(charges(), charges(), charges()) {
		t.Run(fmt.Sprint(i, c.Limit), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			row, now := new(ledger.Row), begin
			k := callers{shares: i / len(charges()) * 100} // none, less than there are lanes, more
			for range 3000 {
				now += r.Int64N(second / 10)
				k.act(row, now, c, r)
				b, err := row.MarshalBinary()
				require.NoError(t, err)
				require.LessOrEqual(t, len(b), ledger.MaxBytes)
				var again ledger.Row
				require.NoError(t, again.UnmarshalBinary(b))
				more, err := again.MarshalBinary()
				require.NoError(t, err)
				require.Equal(t, b, more)
				row = &again
			}
		})
	}
}

// TestP10_ALongLineFits: of a thousand waiters the first have places; the others are counted
// and do not pass for room.
func TestP10_ALongLineFits(t *testing.T) {
	for _, c := range []store.Charge{charge(store.LeakyBucket(10, time.Second)), charge(store.Concurrency(1))} {
		row := new(ledger.Row)
		var a ledger.Arrivals
		for range 1001 {
			b := &store.Booking{Charges: []store.Charge{c}, MaxWait: -1, Horizon: time.Nanosecond}
			q := ledger.NewRequest(begin, ledger.Node{}, &a, b, []*ledger.Row{row})
			q.Book(new(ledger.Waiter))
			bytes, err := row.MarshalBinary()
			require.NoError(t, err)
			require.LessOrEqual(t, len(bytes), ledger.MaxBytes)
			row = new(ledger.Row)
			require.NoError(t, row.UnmarshalBinary(bytes))
		}
		b := &store.Booking{Charges: []store.Charge{c}}
		st := ledger.NewRequest(begin, ledger.Node{}, &a, b, []*ledger.Row{row.Clone()}).Status()
		require.Equal(t, 1000, st.Waiting)
		require.False(t, row.Wants(), "there are enough that have places")

		// If none of them ever asks again, they do not hold up others.
		q := ledger.NewRequest(begin+10*second, ledger.Node{}, &a, b, []*ledger.Row{row.Clone()})
		require.LessOrEqual(t, q.Status().Waiting, 512, "those that have places")
	}
}

func FuzzRow(f *testing.F) {
	for i, c := range charges() {
		r := rand.New(rand.NewPCG(2, uint64(i)))
		row, now := new(ledger.Row), begin
		var k callers
		k.shares = i % 3
		for range 200 {
			now += r.Int64N(second / 10)
			k.act(row, now, c, r)
		}
		b, err := row.MarshalBinary()
		require.NoError(f, err)
		f.Add(b, uint64(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		row := new(ledger.Row)
		if err := row.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, ledger.ErrCorrupt)
			return
		}
		// Whatever it holds, requests end, and it can be saved.
		r := rand.New(rand.NewPCG(3, seed))
		all := charges()
		var k callers
		now := begin
		for range 20 {
			now += r.Int64N(second) - second/20
			k.act(row, now, all[r.IntN(len(all))], r)
			if bytes, err := row.MarshalBinary(); err == nil {
				require.NoError(t, new(ledger.Row).UnmarshalBinary(bytes))
			} else {
				require.ErrorAs(t, err, new(*ledger.TooManyNodesError))
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte{1, 2, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r ledger.Record
		if err := r.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, ledger.ErrCorrupt)
			return
		}
		again, err := r.MarshalBinary()
		require.NoError(t, err)
		var same ledger.Record
		require.NoError(t, same.UnmarshalBinary(again))
		require.Equal(t, r, same)
	})
}

// TestP8_ARecordKnowsItsLastCall: a call is done once, and late copies of it not at all.
func TestP8_ARecordKnowsItsLastCall(t *testing.T) {
	var r ledger.Record
	require.Equal(t, ledger.Do, r.Begin(1, 1))
	require.Equal(t, ledger.Done, r.Begin(1, 2))
	require.EqualValues(t, 1, r.Tried())
	require.Equal(t, ledger.Do, r.Begin(2, 3))
	require.Equal(t, ledger.Late, r.Begin(1, 4))
	require.EqualValues(t, 3, r.Tried())
}
