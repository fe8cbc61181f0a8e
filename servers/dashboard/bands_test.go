package dashboard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBands: readings that find a budget closed make one band of it, which begins anew when somebody else closes it, and
// ends when it opens.
func TestBands(t *testing.T) {
	begun := time.UnixMilli(1_000_000)
	all := make(bands)
	see := func(after time.Duration, until time.Duration, by string) []band {
		b := budget{ID: "shop", By: by}
		if until > 0 {
			b.Until = begun.Add(until).UnixMilli()
		}
		r := &reading{At: begun.Add(after), Budgets: []budget{b}}
		all.add(r, func(string) bool { return true })
		return r.Budgets[0].Bands
	}
	s := func(n int64) int64 { return 1_000_000 + n*1000 }
	require.Empty(t, see(0, 0, ""))
	require.Equal(t, []band{{From: s(1), Until: s(60)}}, see(time.Second, time.Minute, ""))
	require.Equal(t, []band{{From: s(1), Until: s(60)}}, see(2*time.Second, time.Minute+300*time.Millisecond, ""), "an end that has hardly moved stays")
	require.Equal(t, []band{{From: s(1), Until: s(90)}}, see(3*time.Second, 90*time.Second, ""), "a ban is met again")
	require.Equal(t, []band{{From: s(1), Until: s(5)}, {From: s(5), Until: s(100), By: "ann"}}, see(5*time.Second, 100*time.Second, "ann"))
	require.Equal(t, []band{{From: s(1), Until: s(5)}, {From: s(5), Until: s(9), By: "ann"}}, see(9*time.Second, 0, ""))
	require.Empty(t, see(25*time.Hour, 0, ""))
}

// TestBandBefore: of a budget that is closed when somebody begins to look, only the source may know since when.
func TestBandBefore(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	never := func(string) bool { return false }
	r := &reading{At: now, Budgets: []budget{{ID: "ban", Until: 2_000_000}, {ID: "pause", Until: 2_000_000, Since: 900_000}}}
	make(bands).add(r, never)
	require.Equal(t, []band{{From: 1_000_000, Before: true, Until: 2_000_000}}, r.Budgets[0].Bands)
	require.Equal(t, []band{{From: 900_000, Until: 2_000_000}}, r.Budgets[1].Bands)
}

// TestClosedByActs: pauses that nobody watched are known by the audit.
func TestClosedByActs(t *testing.T) {
	now := time.UnixMilli(10_000_000)
	at := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	acts := []act{ // the newest first
		{At: at(time.Minute), Act: "pause", What: "open", By: "bob", For: (5 * time.Minute).Milliseconds()},
		{At: at(20 * time.Minute), Act: "resume", What: "shop", By: "bob"},
		{At: at(25 * time.Minute), Act: "pause", What: "shop", By: "ann", Reason: "moves", For: time.Hour.Milliseconds()},
		{At: at(26 * time.Minute), Act: "pause", What: "shop", By: "eve", For: time.Hour.Milliseconds(), Failed: true},
	}
	closed, begun := closedByActs(acts, now)
	require.Equal(t, map[string]int64{"open": at(time.Minute)}, begun)
	require.Equal(t, []band{{From: at(25 * time.Minute), Until: at(20 * time.Minute), By: "ann", Reason: "moves"}}, closed["shop"])
	require.Empty(t, closed["open"], "readings meet it")
}
