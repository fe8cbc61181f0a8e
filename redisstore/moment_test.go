package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/moments"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP4_NoCallerAsksTwiceAtOneMoment plays random lines in one to four programs, as the test of
// package throttle with this name does in memory.
func TestP4_NoCallerAsksTwiceAtOneMoment(t *testing.T) {
	eachBubble(t, seeds(soak.Most(500, 10)), func(t *testing.T, server *redistest.Server, seed uint64) {
		var stores []throttle.Store
		for range 1 + seed%4 {
			stores = append(stores, atRest(t, redisstore.NewAt(server.Client(t), nil, bubbleClock).Listen()))
		}
		require.NoError(t, moments.Play(t.Context(), seed, stores...))
	})
}
