package rowstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/rowstore"
)

// TestP5_TurnsThatAreNotUsed: a caller of a share gives up when it has had its turn. Its share has the turn back: another caller of the share
// starts before one of a share that came later. Memstore says what is right.
func TestP5_TurnsThatAreNotUsed(t *testing.T) {
	for name, s := range map[string]func() throttle.Store{
		"memstore": func() throttle.Store { return memstore.New() },
		"rowstore": func() throttle.Store { return rowstore.New(newMemory(), nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := s()
				c := throttle.Charge{Budget: throttle.Budget{Policy: "shares", Key: [16]byte{4}}, Limit: throttle.PerSecond(1), Cost: 1}
				require.True(t, now(t, s, c))
				wait := func(share uint64) (*throttle.Booking, throttle.Grant) {
					c.Share = throttle.Share{ID: share}
					b := &throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: throttle.AnyWait, Horizon: 100 * time.Millisecond}
					g, err := s.Book(t.Context(), b)
					require.NoError(t, err)
					require.NotNil(t, g.Ready)
					return b, g
				}
				b, gone := wait(1)
				_, next := wait(1)
				_, other := wait(2)
				<-gone.Ready
				s.Cancel(b, gone)
				select {
				case <-next.Ready:
				case <-other.Ready:
					t.Fatal("the share has lost its turn")
				}
			})
		})
	}
}
