package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
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
	for i := range MaxBudgets + 100 {
		h.Observe(fmt.Sprint(i), observed(0, 1), at(0))
	}
	require.Len(t, h.Snapshot(), MaxBudgets)
	for i := range MaxPauses + 100 {
		p.Note(fmt.Sprint(i), at(time.Hour), at(0))
	}
	require.Len(t, p.Snapshot(), MaxPauses)
	p.Note("1", at(90*time.Minute), at(0))
	require.Equal(t, at(90*time.Minute), p.End("1"), "a pause that is known may last longer")
	p.Note("later", at(2*time.Hour), at(time.Hour))
	require.Len(t, p.Snapshot(), 2, "pauses that are over make room")
}

// TestP1_ForgottenBudgets: a node that has used more budgets than it remembers forgets as many as are too many, and knows all starts of the others.
func TestP1_ForgottenBudgets(t *testing.T) {
	const tooMany = 100
	h := New()
	for i := range MaxBudgets + tooMany {
		h.Observe(fmt.Sprint(i), observed(0, 2, gen(1, 2)), at(0))
	}

	forgotten := 0
	for i := range MaxBudgets + tooMany {
		known := h.Known(fmt.Sprint(i), "g", at(time.Second), 0)
		if known.Generations[0] == (Generation{}) {
			forgotten++
			continue
		}
		require.Equal(t, gen(1, 2), known.Generations[0])
	}
	require.Equal(t, tooMany, forgotten)
}

// TestP12_AllStartsOfAWindowAreKnown: however starts come, those of the last window are told, and none as later than by a part of the window.
func TestP12_AllStartsOfAWindowAreKnown(t *testing.T) {
	const keep, part = 8 * time.Second, 8 * time.Second / wire.Parts
	for name, pauses := range map[string][]time.Duration{
		"steady":           {30 * time.Millisecond},
		"once in a part":   {part},
		"two in each part": {time.Millisecond, part - time.Millisecond},
		"two, and a pause": {time.Millisecond, part},
		"seldom":           {3 * part},
	} {
		t.Run(name, func(t *testing.T) {
			h := New()
			var starts []time.Time
			for i, now := 0, time.Duration(0); now < 3*keep; i++ {
				h.AddUnreported("k", Sample{at(now), 1}, keep)
				starts = append(starts, at(now))
				told := h.Known("k", "g", at(now), 0)
				var ages []time.Duration // of each start that is told, the youngest first
				for _, s := range told.Starts.All() {
					ages = append(ages, slices.Repeat([]time.Duration{s.Ago}, int(s.Count))...)
				}
				for k, start := range slices.Backward(starts) {
					age := at(now).Sub(start)
					if age > keep {
						break
					}
					n := len(starts) - 1 - k
					require.Greater(t, len(ages), n, "%v: a start %v ago is not told", now, age)
					require.LessOrEqual(t, ages[n], age)
					require.Less(t, age-ages[n], part)
				}
				now += pauses[i%len(pauses)]
			}
		})
	}
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

// TestP11_TheLatestEndCounts, until a pause is lifted or over.
func TestP11_TheLatestEndCounts(t *testing.T) {
	p := RestorePauseEnds(nil)
	require.True(t, p.Empty())
	require.Zero(t, p.End("k"))
	p.Note("k", at(time.Minute), at(0))
	p.Note("k", at(time.Second), at(0))
	p.Note("other", at(time.Second), at(0))
	p.Note("over", at(0), at(0))
	require.Equal(t, at(time.Minute), p.End("k"))
	require.Zero(t, p.End("over"))

	keys := slices.Values([]string{"k", "unknown", "other", "k"})
	require.Equal(t, []wire.Pause{{Key: "k", Left: 58 * time.Second}}, p.Known(keys, at(2*time.Second)))
	require.Len(t, p.Snapshot(), 1, "what is over is forgotten")
	p.Forget("k")
	require.Empty(t, p.Known(keys, at(2*time.Second)))
	require.True(t, p.Empty())
}

// TestP4_ReportsQuota: the store is told only where others seem to have spent.
func TestP4_ReportsQuota(t *testing.T) {
	h := New()
	c := &store.Charge{Limit: store.PerMinute(100), Cost: 1}
	said := func(left int, now time.Duration) bool {
		_, report := h.ReportsQuota("k", c, store.Quota{Left: left, Reset: time.Minute}, at(now))
		return report
	}
	require.True(t, said(100, 0), "nothing is known")
	o := observed(0, 10, gen(5, 10))
	o.Keep = time.Minute
	h.Observe("k", o, at(0))
	require.False(t, said(95, time.Second), "the upstream has not counted all")
	require.False(t, said(90, time.Second))
	id, report := h.ReportsQuota("k", c, store.Quota{Left: 80, Reset: time.Minute}, at(time.Second))
	require.True(t, report, "others spent ten")
	require.EqualValues(t, 5, id)
	require.False(t, said(79, time.Second+repeatAfter-1), "the store is being told")
	require.True(t, said(79, time.Second+repeatAfter))

	q := store.Quota{Left: 80, Reset: time.Minute}
	h.ObserveQuota("k", c, q, QuotaReply{Left: 80, Generation: gen(5, 10)}, at(2*time.Second))
	require.False(t, said(80, 3*time.Second), "the store knows")
	require.True(t, said(79, 3*time.Second))
	o = observed(4*time.Second, 15, gen(5, 15))
	h.Observe("k", o, at(4*time.Second))
	require.False(t, said(75, 5*time.Second), "five were booked since")
	require.True(t, said(74, 5*time.Second))

	aged := store.Quota{Left: 75, Reset: time.Minute, Age: 2 * time.Second}
	_, report = h.ReportsQuota("k", c, aged, at(6*time.Second))
	require.True(t, report, "five starts are younger than the response")
}

// TestP4_ReportsQuotaOfABucket: what flows in within a second is not worth a call.
func TestP4_ReportsQuotaOfABucket(t *testing.T) {
	h := New()
	c := &store.Charge{Limit: store.TokenBucket(2, time.Second, 40), Cost: 1}
	o := observed(0, 1, gen(5, 1))
	o.Keep = c.Span()
	h.Observe("k", o, at(0))
	for _, step := range []struct {
		left   int
		report bool
	}{{39, false}, {37, false}, {36, true}} {
		_, report := h.ReportsQuota("k", c, store.Quota{Left: step.left}, at(0))
		require.Equal(t, step.report, report, step.left)
	}
	h.ObserveQuota("k", c, store.Quota{}, QuotaReply{Left: 20, Generation: gen(5, 1)}, at(0))
	_, report := h.ReportsQuota("k", c, store.Quota{Left: 28}, at(5*time.Second))
	require.False(t, report, "ten have flowed in")
	_, report = h.ReportsQuota("k", c, store.Quota{Left: 27}, at(5*time.Second))
	require.True(t, report)
}

func TestElapsed(t *testing.T) {
	d, clock := Elapsed(at(0), at(time.Hour))
	require.Equal(t, wire.ElapsedKnown, clock)
	require.Equal(t, time.Hour, d)
	_, clock = Elapsed(time.Time{}, at(0))
	require.Equal(t, wire.ElapsedUnknown, clock, "it never was")
}

// TestP9_ClockSample: a script that told its time is told whether it was set forward.
func TestP9_ClockSample(t *testing.T) {
	const s = int64(time.Second / time.Microsecond)
	last := Reply{Group: "g", Number: 7, Sent: at(0), ServerTime: 100 * s, By: at(time.Second)}
	now := at(10 * time.Second)
	for name, c := range map[string]struct {
		server int64
		want   wire.Known
	}{
		"not told":       {0, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.ElapsedKnown, AtLeast: 9 * time.Second}},
		"as expected":    {110 * s, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.ElapsedUnknown, AtLeast: 9 * time.Second}},
		"a little later": {110*s + 60_000, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.ElapsedUnknown, AtLeast: 9 * time.Second}},
		"set forward":    {110*s + 60_001, wire.Known{ServerTime: 100 * s, Elapsed: 10 * time.Second, Clock: wire.SetForward, AtLeast: 9 * time.Second}},
	} {
		require.Equal(t, c.want, last.clockSample(now, c.server), name)
	}
	require.Equal(t, wire.ElapsedUnknown, Reply{}.clockSample(now, 0).Clock, "there was no reply")
	require.EqualValues(t, 7, last.record("g", at(RecordTime)))
	require.Zero(t, last.record("other", at(RecordTime)))
	require.Zero(t, last.record("g", at(RecordTime+1)))
}

// TestP9_DecidedAt: the clock was set by more than has passed since the first copy, or
// not.
func TestP9_DecidedAt(t *testing.T) {
	sent, received := at(0), at(2*time.Second)
	decided := int64(1_000_000_000)
	for name, c := range map[string]struct {
		now   int64
		at    int64
		since time.Time
	}{
		"a second later":       {decided + 1_000_000, decided + 1_000_000, at(time.Second)},
		"as long as it can be": {decided + 2_002_000, decided + 2_002_000, at(2002 * time.Millisecond)},
		"set forward":          {decided + 2_002_001, decided, sent},
		"set back":             {decided - 1, decided, sent},
	} {
		at, since := DecidedAt(sent, received, decided, c.now)
		require.Equal(t, c.at, at, name)
		require.Equal(t, c.since, since, name)
	}
}

// TestP9_RepeatedReply: a reply that was given again is as much later than the last one
// as it says, and never in the future. The first reply of all is as old as it says, even if the call had waited for long: otherwise the server's clock would seem to have
// been set back.
func TestP9_RepeatedReply(t *testing.T) {
	again := Reply{Sent: at(time.Second), ServerTime: 4_000_000}
	last := Reply{ServerTime: 1_000_000, By: at(0)}
	require.Equal(t, at(3*time.Second), again.withTime(last, at(time.Minute)).By)
	require.Equal(t, at(2*time.Second), again.withTime(last, at(2*time.Second)).By)

	again.Age = 2 * time.Second
	first := again.withTime(Reply{}, at(10*time.Second))
	require.Equal(t, at(8*time.Second), first.By)
	require.Equal(t, 3*time.Second, first.clockSample(at(11*time.Second), 0).AtLeast)
	again.Age = -time.Second
	require.Equal(t, at(10*time.Second), again.withTime(Reply{}, at(10*time.Second)).By)
}

func TestBetween(t *testing.T) {
	require.Equal(t, time.Second, Between(5, 1_000_005))
	require.Equal(t, -time.Second, Between(1_000_005, 5))
	require.Equal(t, store.MaxAhead, Between(0, 1<<60))
	require.Equal(t, -store.MaxAhead, Between(1<<60, 0))
}

// TestP2_ClockOffsets: the fastest replies bound how far a server's clock is ahead, and a
// clock that was set is noticed.
func TestP2_ClockOffsets(t *testing.T) {
	const ahead = 1_000_000_000 // microseconds
	c := NewClockOffsets()
	reply := func(sent, there, back time.Duration, ahead int64) {
		c.Observe("g", ahead+int64((sent+there)/time.Microsecond), at(sent), at(sent+there+back))
	}
	for i := range 3 {
		_, _, known := c.Until("g", ahead, at(0))
		require.False(t, known)
		reply(time.Duration(i)*time.Second, 10*time.Millisecond, 20*time.Millisecond, ahead)
	}
	reply(3*time.Second, 2*time.Millisecond, 2*time.Millisecond, ahead)
	wait, doubt, known := c.Until("g", ahead+10_000_000, at(4*time.Second))
	require.True(t, known)
	require.GreaterOrEqual(t, wait, 6*time.Second, "no start is early")
	require.LessOrEqual(t, wait-doubt, 6*time.Second)
	require.Less(t, doubt, 6*time.Millisecond)

	reply(5*time.Second, time.Millisecond, time.Millisecond, ahead+1_000_000)
	_, _, known = c.Until("g", ahead, at(5*time.Second))
	require.False(t, known, "the clock was set")
	_, _, known = c.Until("other", ahead, at(0))
	require.False(t, known)
}
