package pgstore

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/rowstore"
)

// NewDatabase returns the database of a store, whose connections end with the test.
func NewDatabase(t testing.TB, url string, o *Options) rowstore.Database {
	t.Helper()
	d, err := newDatabase(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.conns.closeIdle(time.Now()) })
	return d
}
