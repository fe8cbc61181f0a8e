package memstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestP1_AgainstTheDefinition compares fifty thousand more operations with
// the definition.
func TestP1_AgainstTheDefinition(t *testing.T) {
	soak.Arithmetic(t)
	for seed := range uint64(soak.Most(25, 5)) {
		storetest.Random(t, newStore, 1000+seed, 2000)
	}
}
