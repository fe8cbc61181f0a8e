package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestContract runs the whole contract on a real server.
func TestContract(t *testing.T) {
	server := redistest.Shared(t)
	storetest.Run(t, func(t *testing.T) throttle.Store {
		client := server.Client(t)
		require.NoError(t, client.FlushDB(t.Context()).Err())
		return atRest(t, redisstore.NewAt(client, nil, bubbleClock))
	})
}
