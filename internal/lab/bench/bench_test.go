package bench

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bench cleans up like a test, in the same order, and also after a failure.
func TestBench(t *testing.T) {
	var order []string
	folder := t.TempDir()
	err := Run(folder, func(b *Bench) {
		dir := b.TempDir()
		require.DirExists(t, dir)
		require.Equal(t, folder, filepath.Dir(dir))
		b.Cleanup(func() { order = append(order, "first made") })
		b.Cleanup(func() { order = append(order, "last made") })
		b.Must(nil)
		b.Must(errors.New("number 1"))
		order = append(order, "not reached")
	})
	require.EqualError(t, err, "number 1")
	require.Equal(t, []string{"last made", "first made"}, order)
	require.NoError(t, Run("", func(*Bench) {}))
	require.EqualError(t, Run("", func(b *Bench) { b.Fatalf("number %d", 2) }), "number 2")
}
