package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// lineSlack is how far a line of several programs may be from the perfect one: they are called
// by their own timers, a little after their turn has come.
//
// In some cases it is further: those who come back at one moment, after a pause or with a
// start that they give up, find that others whose turn had come were called already; see
// docs/line.md.
var lineSlack = storetest.Slack{
	Order: 300 * time.Millisecond,
	Start: 100 * time.Millisecond,
	Not: []string{
		"P5_LineReturns", "P5_LineCalledAndLate", "P5_LineAndLoweredLimit", "P11_LineAndPause", "P11_LineAndResume",
	},
}

// TestContract runs the whole contract on a real server.
func TestContract(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	storetest.RunWithin(t, lineSlack, func(t *testing.T) throttle.Store {
		client := server.Client(t)
		require.NoError(t, client.FlushDB(t.Context()).Err())
		return atRest(t, redisstore.NewAt(client, nil, bubbleClock))
	})
}
