package memstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/storetest"
)

func newStore(*testing.T) throttle.Store { return memstore.New() }

func TestContract(t *testing.T) { storetest.Run(t, newStore) }
