package pgstore_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
)

// newServer starts a server whose database has been set up.
func newServer(t *testing.T, settings ...string) *pgtest.Server {
	t.Helper()
	s := pgtest.Start(t, settings...)
	require.NoError(t, pgstore.Setup(t.Context(), s.URL(), pgstore.Options{}))
	return s
}

// TestDatabase: what rowstore asks of a database, and the contract of stores on it.
func TestDatabase(t *testing.T) {
	server := newServer(t)
	rowtest.Run(t, func(t *testing.T) rowstore.Database { return pgstore.NewDatabase(t, server.URL(), pgstore.Options{}) }, rowstore.Options{})
	rowtest.Connection(t, server.Addr(), func(t *testing.T, address string) rowstore.Database {
		u, err := url.Parse(server.URL())
		require.NoError(t, err)
		u.Host = address
		return pgstore.NewDatabase(t, u.String(), pgstore.Options{})
	})
}
