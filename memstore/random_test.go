package memstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/storetest"
)

// TestP1_AgainstTheDefinition compares a hundred thousand more operations with
// the definition.
func TestP1_AgainstTheDefinition(t *testing.T) {
	for seed := range uint64(50) {
		storetest.Random(t, newStore, 1000+seed, 2000)
	}
}
