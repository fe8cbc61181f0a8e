package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// at is a time d after an arbitrary one.
func at(d time.Duration) time.Time { return origin.Add(d) }

func gen(id, count int64) Generation { return Generation{ID: id, Count: count} }

// observed is a reply's word of a budget with a window of ten seconds: the IDs of its
// generations with their counts, and how many starts count now.
func observed(now time.Duration, starts int64, generations ...Generation) Observation {
	o := Observation{Reply: Reply{Group: "g", Number: 1, Sent: at(now), ServerTime: 1, By: at(now)}, Keep: 10 * time.Second}
	copy(o.Generations[:], generations)
	o.Starts = Sample{at(now), starts}
	return o
}

// TestP10_ANodeForgets: what a node remembers of the budgets that it used, and of their
// pauses, is bounded.
func TestP10_ANodeForgets(t *testing.T) {
	h, p := New(), RestorePauseEnds(nil)
	for i := range MostBudgets + 100 {
		h.Observe(fmt.Sprint(i), observed(0, 1), at(0))
	}
	require.Len(t, h.Snapshot(), MostBudgets)
	for i := range MostPauses + 100 {
		p.Note(fmt.Sprint(i), at(time.Hour), at(0))
	}
	require.Len(t, p.Snapshot(), MostPauses)
	p.Note("later", at(2*time.Hour), at(time.Hour))
	require.Len(t, p.Snapshot(), 1, "pauses that are over make room")
}

// TestP12_OnlyNewStartsAreAdded: starts of a generation that is known are added once,
// whatever Redis lost and made anew.
func TestP12_OnlyNewStartsAreAdded(t *testing.T) {
	h := New()
	total := func() (n int64) {
		k := h.Known("k", "g", at(time.Second), 0)
		for _, s := range k.Starts.All() {
			n += s.Count
		}
		return n
	}
	require.False(t, h.Observe("k", observed(0, 3, gen(1, 3)), at(0)))
	require.False(t, h.Observe("k", observed(0, 5, gen(1, 5)), at(0)))
	require.EqualValues(t, 5, total())
	require.True(t, h.Observe("k", observed(0, 6, gen(2, 1), gen(1, 5)), at(0)), "it was lost")
	require.EqualValues(t, 6, total())
	require.False(t, h.Observe("k", observed(0, 6, gen(1, 5)), at(0)), "a replica has the old one")
	h.AddUnreported("k", Sample{at(0), 3}, time.Second)
	h.AddUnreported("k", Sample{at(0), 1}, time.Second)
	require.EqualValues(t, 10, total())
	own := h.Known("k", "g", at(time.Second), 0).Generations[0]
	require.EqualValues(t, 4, own.Count)
	require.Equal(t, [Generations + 1]Generation{own, gen(1, 5)}, h.Known("k", "g", at(time.Second), 0).Generations)
	require.True(t, h.HasUnreported("k", at(0)))
	require.False(t, h.Observe("k", observed(0, 10, gen(1, 5), own), at(0)))
	h.MarkReported("k")
	require.False(t, h.HasUnreported("k", at(0)))
	require.EqualValues(t, 10, total(), "what was told is no news")

	known := h.Known("k", "g", at(11*time.Second), 0)
	require.Zero(t, known.Generations, "what does not matter is not told")
	require.Empty(t, known.Starts)
	require.False(t, h.Observe("k", observed(11*time.Second, 1, gen(3, 1)), at(11*time.Second)), "nor lost")
}

// TestP12_StartsWithoutANameAreAddedOnce: a generation that loses its name is counted with the starts
// that have none, and is no news.
func TestP12_StartsWithoutANameAreAddedOnce(t *testing.T) {
	named := func(from int64) (all []Generation) { // the youngest first, each with 10 starts
		for i := range int64(Generations) {
			all = append(all, gen(from+Generations-1-i, 10))
		}
		return all
	}
	with := func(older int64, generations ...Generation) (b Budget) {
		copy(b.Generations[:], generations)
		b.Older.Count = older
		return b
	}
	for name, x := range map[string]struct {
		known, told Budget
		news        int64
	}{
		"the same":                  {with(7, named(1)...), with(7, named(1)...), 0},
		"one more":                  {with(7, named(1)...), with(17, named(2)...), 10},
		"one more, of which 3 late": {with(7, named(1)...), with(20, named(2)...), 13},
		"nothing was known":         {with(0), with(7, named(1)...), 10*Generations + 7},
		"few were known":            {with(0, gen(3, 4), gen(2, 10)), with(7, named(2)...), 10*Generations + 7 - 14},
		"an older one was known":    {with(0, gen(3, 4), gen(1, 5)), with(7, named(2)...), 10*Generations + 7 - 9},
		"the row has fewer":         {with(7, named(1)...), with(0, gen(20, 4), gen(19, 2)), 6},
	} {
		require.Equal(t, x.news, x.known.newStarts(x.told.Generations, x.told.Older), name)
	}
}

// TestP1_SamplesAreNotTooEarly: however many starts there are, few samples say of all
// that none is later than it is.
func TestP1_SamplesAreNotTooEarly(t *testing.T) {
	b := Budget{Keep: 8 * time.Second}
	for i := range 100 {
		now := at(time.Duration(i) * 100 * time.Millisecond)
		b.Add(Sample{now, 1})
		require.LessOrEqual(t, len(b.Starts), wire.Parts+1)
		for d := time.Duration(0); d <= 7*time.Second; d += 50 * time.Millisecond {
			begin := at(time.Duration(i)*100*time.Millisecond - d)
			require.GreaterOrEqual(t, b.startsSince(begin), min(int64(i), int64(d/(100*time.Millisecond)))+1, "since %v", d)
		}
	}
	b.Add(Sample{at(0), 1})
	require.Equal(t, at(9900*time.Millisecond), b.Starts[len(b.Starts)-1].By, "samples stay in order")
}

// TestP12_ALossIsAnnouncedOnce in a second, and only by nodes that remember the budget.
func TestP12_ALossIsAnnouncedOnce(t *testing.T) {
	h := New()
	require.False(t, h.NoteLoss("k", at(0)))
	h.Observe("k", observed(0, 1, gen(1, 1)), at(0))
	require.True(t, h.NoteLoss("k", at(0)))
	require.False(t, h.NoteLoss("k", at(999*time.Millisecond)))
	require.True(t, h.NoteLoss("k", at(time.Second)))
}

// TestRestore: what a snapshot holds stays as it was.
func TestRestore(t *testing.T) {
	h := New()
	h.Observe("k", observed(0, 1, gen(1, 1)), at(0))
	kept := h.Snapshot()
	other := Restore(kept)
	require.Equal(t, kept, other.Snapshot())
	other.Observe("k", observed(time.Second, 2, gen(1, 2)), at(time.Second))
	require.Equal(t, kept, h.Snapshot())
}
