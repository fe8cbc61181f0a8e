package rowstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/rowstore/rowtest"
)

// TestDatabase: stores on a database that can do all that a database may be able to do.
func TestDatabase(t *testing.T) {
	soak.WithoutRace(t)
	one := newMemory()
	rowtest.Run(t, func(*testing.T) rowstore.Database { return notifier{one} }, nil)
}
