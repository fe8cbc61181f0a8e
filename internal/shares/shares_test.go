package shares

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
)

// status is a share of weight 1.
func status(id uint64, waiting, served int) store.ShareStatus {
	return store.ShareStatus{Share: store.Share{ID: id, Weight: 1}, Waiting: waiting, Served: served}
}

func TestLines(t *testing.T) {
	require.Nil(t, Lines(nil))
	require.Equal(t, []Line{
		{Name: "00000000000abc", Weight: 3, Waiting: 9, Served: 1},
		{Name: "none", Weight: 1, Waiting: 2, Served: 8},
		{Name: "common", Weight: 1, Waiting: 2, Served: -1},
		{Name: "1fffffffffffff", Weight: 1, Served: 7},
	}, Lines([]store.ShareStatus{
		{Waiting: 2, Served: 8}, status(1, 2, -1), {Share: store.Share{ID: 0xabc, Weight: 3}, Waiting: 9, Served: 1}, status(1<<53-1, 0, 7),
	}))
}

// TestTheRest: what is beyond the sixteen shares that wait most is told together, and so nothing is missing.
func TestTheRest(t *testing.T) {
	var all []store.ShareStatus
	for i := range 40 {
		all = append(all, status(uint64(100+i), 1000-i, 10))
	}
	require.Len(t, Lines(all[:16]), 16)
	require.Equal(t, Line{Name: "other", Waiting: 984, Served: 10, Shares: 1}, Lines(all[:17])[16])
	lines, waiting := Lines(all), 0
	require.Len(t, lines, 17)
	for _, l := range lines {
		waiting += l.Waiting
	}
	require.Equal(t, 40*1000-39*40/2, waiting)
	require.Equal(t, Line{Name: "other", Waiting: 24*1000 - (16+39)*12, Served: 240, Shares: 24}, lines[16])
	require.Equal(t, uint64(100), all[0].ID, "the list is its owner's")
	all[39].Served = -1
	require.Equal(t, -1, Lines(all)[16].Served)
}

func TestAdd(t *testing.T) {
	sum := Add(nil, []store.ShareStatus{status(5, 1, 2), status(6, 3, 4)})
	sum = Add(sum, []store.ShareStatus{status(6, 10, 20), status(7, 1, -1)})
	sum = Add(sum, []store.ShareStatus{status(5, 1, -1)})
	require.Equal(t, []store.ShareStatus{status(5, 2, -1), status(6, 13, 24), status(7, 1, -1)}, sum)
}
