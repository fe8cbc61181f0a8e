package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpreadCountsAll upstreams once.
func TestSpreadCountsAll(t *testing.T) {
	for _, shards := range []int{1, 3, 16, 64} {
		sum, most := 0, 0
		for _, n := range spread(1000, shards) {
			sum, most = sum+n, max(most, n)
		}
		require.Equal(t, 1000, sum)
		o := outlook{calls: 2, published: 3}
		h := o.hottest(1000, shards, costs{})
		require.Equal(t, most, h.upstreams)
		require.Equal(t, float64(3*1000), h.published+h.taken)
		require.Equal(t, float64(2*most), h.calls)
	}
}
