package dashboard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSeries: points are kept for an hour, those of a budget that is gone, too, and are found by their moment.
func TestSeries(t *testing.T) {
	begun := time.UnixMilli(1_000_000_000)
	s := make(series)
	add := func(after time.Duration, ids ...string) {
		r := &reading{At: begun.Add(after)}
		for _, id := range ids {
			r.Budgets = append(r.Budgets, budget{ID: id, Used: int(after / time.Second), Until: begun.Add(10 * time.Second).UnixMilli()})
		}
		s.add(r)
	}
	_, _, known := s.at("shop", begun.UnixMilli())
	require.False(t, known)
	for n := range 3 * mostPoints {
		if after := time.Duration(n) * every; n < 60 {
			add(after, "shop", "gone")
		} else {
			add(after, "shop")
		}
		require.LessOrEqual(t, len(s["shop"].fine), mostPoints+mostPoints/8+1)
	}
	require.Empty(t, s["gone"].fine)
	last := begun.Add(time.Duration(3*mostPoints-1) * every)
	p, _, known := s.at("shop", last.Add(-1).UnixMilli())
	require.True(t, known)
	require.Equal(t, 3*mostPoints-2, p.Used)
	require.Zero(t, p.Left)
	c := s.recent("shop", 2)
	require.Equal(t, []int{3*mostPoints - 2, 3*mostPoints - 1}, c.Used)

	s = make(series)
	for range 2 * mostPoints { // each act has the source read
		add(3*time.Second, "shop")
	}
	require.LessOrEqual(t, len(s["shop"].fine), mostPoints+mostPoints/8+1)
	p, _, _ = s.at("shop", begun.Add(time.Hour).UnixMilli())
	require.Equal(t, int64(7000), p.Left)
}
