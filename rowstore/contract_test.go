package rowstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/internal/twostores"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/rowstore/rowtest"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestDatabase: stores on a database that can do all that a database may be able to do.
func TestDatabase(t *testing.T) {
	soak.WithoutRace(t)
	one := newMemory()
	rowtest.Run(t, func(*testing.T) rowstore.Database { return notifier{one} }, nil)
}

// TestContractOfTwoStores: two nodes, which take turns to be called.
func TestContractOfTwoStores(t *testing.T) {
	soak.WithoutRace(t)
	storetest.RunWithin(t, twostores.Slack, func(*testing.T) throttle.Store {
		m, o := notifier{newMemory()}, &rowstore.Options{Lease: farthest.Wait}
		return twostores.New(rowstore.New(m, o), rowstore.New(m, o))
	})
}
