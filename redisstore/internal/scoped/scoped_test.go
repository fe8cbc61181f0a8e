package scoped_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/scoped"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestContract composes two stores in memory. Waiters in two lines come a little later
// than they would in one.
func TestContract(t *testing.T) {
	storetest.RunWithin(t, storetest.Slack{Order: 300 * time.Millisecond, Start: 100 * time.Millisecond},
		func(*testing.T) throttle.Store { return scoped.Compose(memstore.New(), memstore.New()) })
}
