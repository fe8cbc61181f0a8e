package rowstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// TestBoard: nodes read what is for them, once, and learn that they have missed something. The row stays small.
func TestBoard(t *testing.T) {
	var all board
	told := func(key byte, nodes ...int64) *node.Told {
		return &node.Told{News: ledger.News{Moved: []ledger.Key{{key}}}, Nodes: nodes, All: len(nodes) == 0}
	}
	keys := func(since, node int64) (found []byte, lost bool) {
		again, err := parseBoard(all.bytes())
		require.NoError(t, err)
		h, err := again.since(since, node)
		require.NoError(t, err)
		for _, k := range h.News.Moved {
			found = append(found, k[0])
		}
		return found, h.Lost
	}
	all.pin(1000, 1, told(1))
	first := all.last
	all.pin(1000, 2, told(2, 3, 1))
	all.pin(500, 1, told(3, 2))

	found, lost := keys(0, 1)
	require.Equal(t, []byte{2}, found)
	require.False(t, lost)
	found, _ = keys(0, 3)
	require.Equal(t, []byte{1, 2}, found)
	found, _ = keys(first, 3)
	require.Equal(t, []byte{2}, found)
	found, _ = keys(all.last, 3)
	require.Empty(t, found)

	before := all.last
	for i := range 1000 {
		all.pin(2000, 1, told(byte(i)))
	}
	require.Less(t, len(all.bytes()), maxBoard+100)
	_, lost = keys(before, 3)
	require.True(t, lost)
	_, lost = keys(all.last-1, 3)
	require.False(t, lost)

	all.pin(2000+2*noteLife, 1, told(4))
	require.Len(t, all.notes, 1, "notes are taken down in time")

	var empty board
	var crowd node.Told
	for range 1000 {
		crowd.News.Moved = append(crowd.News.Moved, ledger.Key{})
	}
	empty.pin(1, 1, &crowd)
	require.Empty(t, empty.notes, "news that are too long are lost")
	h, err := empty.since(0, 2)
	require.NoError(t, err)
	require.True(t, h.Lost)
}

// TestBoardOfOtherBytes: bytes that are no board are an error.
func TestBoardOfOtherBytes(t *testing.T) {
	soak.WithoutRace(t)
	var all board
	for range 3 {
		all.pin(1000, 1, &node.Told{News: ledger.News{Moved: []ledger.Key{{1}}}, Nodes: []int64{7}})
	}
	whole := all.bytes()
	for n := 1; n < len(whole); n++ {
		_, err := parseBoard(whole[:n])
		require.ErrorIs(t, err, ledger.ErrCorrupt, "%d bytes", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		b := append([]byte(nil), whole...)
		for range 3 {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		if other, err := parseBoard(b); err == nil {
			_, _ = other.since(0, 7)
			_ = other.bytes()
		}
	}
	_, err := parseBoard([]byte{2})
	require.ErrorIs(t, err, errForm)
}
