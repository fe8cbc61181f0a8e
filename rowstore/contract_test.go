package rowstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestContract: one node.
func TestContract(t *testing.T) {
	soak.WithoutRace(t)
	storetest.Run(t, func(*testing.T) throttle.Store {
		return rowstore.New(notifier{newMemory()}, &rowstore.Options{Lease: farthest.Wait})
	})
}
