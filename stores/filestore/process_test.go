//go:build linux || darwin

package filestore_test

import (
	"os"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/processes"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// shared is the store of several processes.
var shared = processes.Store{
	Role: "filestore", Lease: lease,
	Open: func(dir string, lease time.Duration) (s store.Store, close func(), err error) {
		s, err = filestore.OpenHere(dir, lease)
		return s, nil, err
	},
}

// lease lets tests see the end of it soon.
const lease = time.Second

func TestMain(m *testing.M) {
	shared.Main()
	crew.Main(markRole, markMember)
	os.Exit(m.Run())
}

// TestProcesses is what processes of one machine are promised.
func TestProcesses(t *testing.T) { shared.Run(t, func(t *testing.T) string { return t.TempDir() }) }
