package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A bench cleans up like a test, in the same order, and also after a failure.
func TestBench(t *testing.T) {
	var order []string
	err := onBench(func(b *bench) {
		require.DirExists(t, b.TempDir())
		b.Cleanup(func() { order = append(order, "first made") })
		b.Cleanup(func() { order = append(order, "last made") })
		b.Fatalf("number %d", 1)
		order = append(order, "not reached")
	})
	require.EqualError(t, err, "number 1")
	require.Equal(t, []string{"last made", "first made"}, order)
	require.NoError(t, onBench(func(*bench) {}))
}
