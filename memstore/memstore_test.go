package memstore_test

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/storetest"
)

func newStore(*testing.T) throttle.Store { return memstore.New() }

func TestContract(t *testing.T) { storetest.Run(t, newStore) }

// charge returns a charge of 1 without jitter to a budget of that name.
func charge(name string, l throttle.Limit) throttle.Charge {
	key := sha256.Sum256([]byte(name))
	return throttle.Charge{Budget: throttle.Budget{Policy: name, Group: "group", Key: [16]byte(key[:])}, Limit: l, Cost: 1}
}

// booking is patient.
func booking(charges ...throttle.Charge) *throttle.Booking {
	return &throttle.Booking{Charges: slices.Clone(charges), MaxWait: -1}
}

// book books, however long the wait, and returns the wait.
func book(t *testing.T, s throttle.Store, charges ...throttle.Charge) time.Duration {
	t.Helper()
	g, err := s.Book(t.Context(), booking(charges...))
	require.NoError(t, err)
	require.True(t, g.OK)
	return g.Wait
}
