package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestP5_LineAgainstThePerfectQueue compares twenty thousand more visits with the perfect
// queue. When all are gone nothing is kept.
func TestP5_LineAgainstThePerfectQueue(t *testing.T) {
	for seed := range uint64(soak.Most(150, 40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RandomLine(t, storetest.Slack{}, forgetful, 1000+seed, 150)
		})
	}
}

// forgetful is a new store that has forgotten all when the test is over.
func forgetful(t *testing.T) throttle.Store {
	s := memstore.New()
	t.Cleanup(func() {
		other := charge("sweeps the shard", throttle.PerSecond(1))
		other.Budget.Key = [16]byte{'l'} // as those of RandomLine begin
		for range 3 {
			time.Sleep(time.Minute)
			_, err := s.Book(t.Context(), booking(other))
			require.NoError(t, err)
		}
		kept, _ := s.Rows()
		require.Equal(t, 1, kept)
	})
	return s
}
