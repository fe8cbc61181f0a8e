//go:build unix

package sqlstore_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/processes"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// shared is the store of several processes, with a lease that lets tests see the end of it soon.
var shared = processes.Store{
	Role: "sqlstore", Lease: 2 * time.Second,
	Open: func(dsn string, lease time.Duration) (s store.Store, close func(), err error) {
		db, err := openDB(dsn)
		if err != nil {
			return nil, nil, err
		}
		s, err = sqlstore.New(db, sqlstore.Options{Rows: rowstore.Options{Lease: lease}})
		return s, func() { _ = db.Close() }, err
	},
}

// TestProcesses is what processes are promised that share a database.
func TestProcesses(t *testing.T) {
	shared.Run(t, func(t *testing.T) string { return table(t) })
}
