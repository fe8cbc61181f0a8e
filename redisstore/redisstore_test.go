package redisstore_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// virtual returns a store on an empty server whose scripts are told the time of
// the bubble that it is made in.
func TestContract(t *testing.T) {
	server := redistest.Single(t)
	storetest.Run(t, func(t *testing.T) throttle.Store {
		client := server.Client(t)
		client.FlushAll(t.Context())
		return redisstore.NewAt(client, nil, func() int64 { return time.Now().UnixMicro() })
	})
}
