//go:build unix

package pgstore_test

import (
	"os"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/internal/lab/processes"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// shared is the store of several processes, with a lease whose end tests see soon, and within which a process of a busy machine comes to renew it.
var shared = processes.Store{
	Role: "pgstore", Lease: 4 * time.Second,
	Open: func(url string, lease time.Duration) (s store.Store, close func(), err error) {
		s, err = pgstore.New(url, pgstore.Options{Rows: rowstore.Options{Lease: lease}})
		return s, nil, err
	},
}

func TestMain(m *testing.M) {
	shared.Main()
	os.Exit(pgtest.Main(m))
}

// TestProcesses is what processes that share a database are promised.
func TestProcesses(t *testing.T) {
	server := newServer(t)
	shared.Run(t, func(t *testing.T) string { return newDatabase(t, server) })
}
