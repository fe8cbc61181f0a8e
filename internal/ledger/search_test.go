package ledger

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// TestP3_PartsAfterAPause: callers that wait start at the begins of parts again as soon as the slow start after a pause is over.
func TestP3_PartsAfterAPause(t *testing.T) {
	const second = 1_000_000
	c := store.Charge{Budget: store.Budget{Key: Key{1}}, Limit: store.PerSecond(1000), Cost: 1, Pace: store.PerSecond(1000).Pace()}
	b := &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait, Horizon: time.Hour}
	for _, after := range []int64{0, second / 2, 3 * second} {
		row, now := new(Row), int64(1_700_000_000_000_000)
		if after > 0 {
			NewRequest(now, Node{}, nil, b, []*Row{row}).Pause(time.Second)
			now += second + after
		}
		book := func() int64 {
			q := NewRequest(now, Node{}, nil, b, []*Row{row})
			require.True(t, q.BookNow())
			return q.Grant.Handle.Start
		}
		for range 1000 {
			book()
		}
		part := partOf(Micros(c.Span()))
		require.Equal(t, after != second/2, book()%part == 0, "%d µs after the pause", after)
	}
}

// TestP3_TheLongestEvenWindow: starts of a window of exactly MaxEvenWindow begin at parts, as those of any short window.
func TestP3_TheLongestEvenWindow(t *testing.T) {
	for _, per := range []time.Duration{time.Second, store.MaxEvenWindow} {
		limit := store.SlidingWindow(1000, per)
		c := store.Charge{Budget: store.Budget{Key: Key{1}}, Limit: limit, Cost: 1, Pace: limit.Pace()}
		b := &store.Booking{Charges: []store.Charge{c}, MaxWait: store.AnyWait, Horizon: time.Hour}
		row, last := new(Row), int64(0)
		for range 1500 {
			q := NewRequest(1_700_000_000_000_000, Node{}, nil, b, []*Row{row})
			require.True(t, q.BookNow())
			last = q.Grant.Handle.Start
		}
		require.Zero(t, last%partOf(Micros(c.Span())), "%v", per)
	}
}

// TestP3_ALaterQuestionFindsNoEarlierStart: a search that begins later, but not behind the start that an earlier one found, finds the same
// start. Otherwise the start of a caller with several budgets depends on which of them is asked first, and the twins differ. Rows have wide
// entries, as after a clock that was set back.
func TestP3_ALaterQuestionFindsNoEarlierStart(t *testing.T) {
	limits := []store.Limit{
		store.SlidingWindow(20, time.Second), store.FixedWindow(20, time.Second), store.LeakyBucket(10, time.Second),
		store.TokenBucket(10, time.Second, 30), store.Unlimited(),
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 40_000 {
		c := store.Charge{Limit: limits[r.IntN(len(limits))], Cost: 1 + r.IntN(5), Jitter: time.Duration(r.IntN(2)) * 5 * time.Millisecond}
		if c.Limit.Kind() == store.KindLeakyBucket {
			c.Cost = 1
		}
		s, now := Search{}, int64(1_700_000_000_000_000)
		s.rule.set(&c, time.Duration(r.IntN(2))*10*time.Millisecond)

		row := &Row{seen: now, span: s.rule.span, most: s.rule.peak, unit: s.rule.micros}
		at := now - 1_500_000
		for range r.IntN(8) {
			at += 1 + r.Int64N(400_000)
			end := at + r.Int64N(2)*r.Int64N(600_000)
			row.entries = append(row.entries, entry{at, end, 1 + r.Int64N(12)})
			row.total += row.entries[len(row.entries)-1].n
			at = end
		}
		if r.IntN(4) == 0 {
			row.paused, row.last = now+r.Int64N(1_000_000)-500_000, penalty{length: r.Int64N(3_000_000), probe: MinProbe}
		}

		s.row, s.from = row, now
		first := s
		start := first.earliest(now)
		for range 5 {
			later := s
			t2 := now + r.Int64N(start-now+1)
			require.Equal(t, start, later.earliest(t2), "%v, cost %d, asked for %d and %d: %+v", c.Limit, c.Cost, now, t2, row)
		}
	}
}
