//go:build linux || darwin

package filestore_test

import (
	"testing"
	"testing/synctest"

	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// TestDifferential has random callers ask memstore and stores of files the same. All answers
// are the same, to the microsecond.
func TestDifferential(t *testing.T) {
	dirs := t.TempDir()
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			m, dir := &filestore.Machine{Boot: "one", Grow: everyFewSteps}, newDir(t, dirs)
			twostores.Differ(t, seed, 300, memstore.New(), twostores.New(open(t, m, dir), open(t, m, dir)))
		})
	}
}
