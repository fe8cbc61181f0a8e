//go:build linux || darwin

package filestore_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestContract: one process.
func TestContract(t *testing.T) {
	dirs := t.TempDir()
	storetest.Run(t, func(t *testing.T) store.Store {
		return open(t, &filestore.Machine{Boot: "one"}, newDir(t, dirs))
	})
}

// TestContractOfTwoStores: two of them, which take turns to be called.
func TestContractOfTwoStores(t *testing.T) {
	soak.WithoutRace(t)
	dirs := t.TempDir()
	storetest.RunWithin(t, twostores.Slack, func(t *testing.T) store.Store {
		m, dir := &filestore.Machine{Boot: "one", Grow: everyFewSteps}, newDir(t, dirs)
		return twostores.New(open(t, m, dir), open(t, m, dir))
	})
}

// everyFewSteps lets a file end after a few steps: when its records are three times what it began with. It does not end after each step: the
// files of a bubble are never old enough to be removed, and whoever ends one looks at all of them.
const everyFewSteps = 1

// newDir makes a directory that outlives the test: stores are not closed, and end with a bubble.
func newDir(t *testing.T, in string) string {
	dir, err := os.MkdirTemp(in, "")
	require.NoError(t, err)
	return dir
}

func open(t *testing.T, m *filestore.Machine, dir string) *filestore.Store {
	s, err := m.Open(dir, store.MaxAhead)
	require.NoError(t, err)
	return s
}
