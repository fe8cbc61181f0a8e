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

// Hears reports whether messages arrive, and Heard how many did.
func Hears(d rowstore.Database) bool {
	l := &d.(*database).listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hears
}

func Heard(d rowstore.Database) int {
	l := &d.(*database).listener
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}
