//go:build unix

package sqlstore_test

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestTransactions: what a Database promises, and stores on it whose replies are lost.
func TestTransactions(t *testing.T) {
	t.Parallel()
	rowtest.Transactions(t, databases(table(t)), rowstore.Options{})
}

// TestConnection: connections that are lost, that stand still, and that are refused.
func TestConnection(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	rowtest.Connection(t, config.Addr, func(t *testing.T, address string) rowstore.Database {
		c := config.Clone()
		c.Addr = address
		return databases(c.FormatDSN())(t)
	})
}

// TestContract: the contract of stores, one and two of them.
func TestContract(t *testing.T) {
	soak.Only(t)
	rowtest.Run(t, databases(table(t)), rowstore.Options{})
}

func databases(dsn string) func(t *testing.T) rowstore.Database {
	return func(t *testing.T) rowstore.Database { return sqlstore.NewDatabase(open(t, dsn)) }
}
