package pgstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/internal/pgtest"
	"github.com/fleetthrottle/throttle/pgstore"
	"github.com/fleetthrottle/throttle/rowstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// newServer starts a server whose database has been set up.
func newServer(t *testing.T, settings ...string) *pgtest.Server {
	s := pgtest.Start(t, settings...)
	require.NoError(t, pgstore.Setup(t.Context(), s.URL(), nil))
	return s
}

var names atomic.Int64

// newName returns a name of stores that share nothing with others.
func newName() string { return fmt.Sprint("n", names.Add(1)) }

// inBubble returns so many stores of one table in a bubble.
func inBubble(t *testing.T, server *pgtest.Server, n int) (stores []throttle.Store) {
	name, bubble := newName(), new(pgstore.Bubble)
	for range n {
		d := pgstore.NewDatabase(t, server.URL(), nil).In(bubble)
		stores = append(stores, rowstore.New(d, &rowstore.Options{Name: name, Lease: farthest.Wait}))
	}
	return stores
}

// TestContract: one node.
func TestContract(t *testing.T) {
	server := newServer(t)
	storetest.Run(t, func(t *testing.T) throttle.Store { return inBubble(t, server, 1)[0] })
}
