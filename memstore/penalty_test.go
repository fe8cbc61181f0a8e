package memstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// refuse closes a budget for a minute, because a request was refused just now.
func refuse(t *testing.T, s *memstore.Store, c throttle.Charge) {
	_, _, err := s.Refuse(t.Context(), c, throttle.Refusal{Length: time.Minute, Ago: time.Millisecond})
	require.NoError(t, err)
}

// TestP11_ABanOutlivesItsWindow: rows are tidied up by others of their shard, and a ban that
// may be met again is not forgotten so.
func TestP11_ABanOutlivesItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := throttle.Charge{Limit: throttle.PerSecond(9), Cost: 1}
		refuse(t, s, c)
		time.Sleep(79 * time.Second)
		for i := range 1000 {
			other := throttle.Charge{Limit: throttle.PerSecond(9), Cost: 1}
			copy(other.Budget.Key[8:], fmt.Sprint("o ", i)) // the same shard
			_, err := s.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{other}})
			require.NoError(t, err)
		}
		refuse(t, s, c)
		st, err := s.Status(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, st.Paused)
		require.Equal(t, 1, st.Repeated)
	})
}
