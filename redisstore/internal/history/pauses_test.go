package history

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

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
