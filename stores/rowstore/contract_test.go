package rowstore_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/lab/twostores"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestDatabase: stores on a database that can do all that a database may be able to do.
func TestDatabase(t *testing.T) {
	one := newMemory()
	rowtest.Run(t, func(*testing.T) rowstore.Database { return notifier{one} }, rowstore.Options{})
}

// TestServerOnABusyMachine: minutes pass for a server while no time passes in a bubble, because the machine has other work. The
// checks in bubbles do not depend on that.
func TestServerOnABusyMachine(t *testing.T) {
	passed := time.Duration(0)
	one := newMemory()
	one.clock = func() time.Time {
		now := time.Now()
		if now.Year() < 2020 { // in a bubble
			passed += 10 * time.Minute
			now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(passed)
		}
		return now
	}
	rowtest.Transactions(t, func(*testing.T) rowstore.Database { return notifier{one} }, rowstore.Options{})
}

// TestContractOfTwoStores: two nodes, which take turns to be called.
func TestContractOfTwoStores(t *testing.T) {
	soak.WithoutRace(t)
	storetest.RunWithin(t, twostores.Slack, func(*testing.T) store.Store {
		m, o := notifier{newMemory()}, rowstore.Options{Lease: store.MaxAhead}
		return twostores.New(must(rowstore.New(m, o)), must(rowstore.New(m, o)))
	})
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
