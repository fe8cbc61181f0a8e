//go:build unix

package sqlstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// TestWrongSetUp: how connections are set up is refused at once where a step would take eight round trips, or would not be
// saved, with what to write. All mistakes are told together.
func TestWrongSetUp(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	plain := strings.Replace(dsn, "?multiStatements=true", "", 1)
	const line, leave = `add multiStatements=true to the data source name, as in "user:password@tcp(host:3306)/database?multiStatements=true"`, "leave autocommit out of the data source name"
	for _, c := range []struct {
		dsn   string
		o     sqlstore.Options
		wrong []string
	}{
		{dsn, sqlstore.Options{}, nil},
		{dsn + "&interpolateParams=true&parseTime=true", sqlstore.Options{Rows: rowstore.Options{Lease: time.Second}}, nil},
		{plain, sqlstore.Options{}, []string{line}},
		{plain + "?multiStatements=false", sqlstore.Options{}, []string{line}},
		{plain + "?interpolateParams=true", sqlstore.Options{}, []string{line}},
		{dsn + "&autocommit=0", sqlstore.Options{}, []string{leave}},
		{dsn, sqlstore.Options{Rows: rowstore.Options{Rows: -1}}, []string{"rowstore: Options.Rows: -1 is negative"}},
		{plain + "?autocommit=0", sqlstore.Options{Rows: rowstore.Options{Lease: 10}}, []string{leave, line, "rowstore: Options.Lease: 10ns is too short"}},
	} {
		s, err := sqlstore.New(open(t, c.dsn), c.o)
		require.Equal(t, len(c.wrong) == 0, err == nil, "%s: %v", c.dsn, err)
		require.Equal(t, len(c.wrong) == 0, s != nil)
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, wrong)
			require.ErrorAs(t, err, new(*store.OptionError))
			require.Equal(t, 1, strings.Count(err.Error(), wrong))
		}
	}

	_, err := sqlstore.New(nil, sqlstore.Options{Rows: rowstore.Options{Rows: -1}})
	require.ErrorContains(t, err, "sqlstore: db: is nil")
	require.ErrorContains(t, err, "rowstore: Options.Rows")
}

// TestRefusedLogin: what the server refuses is told by New, and a server that is away is not.
func TestRefusedLogin(t *testing.T) {
	t.Parallel()
	_, err := sqlstore.New(open(t, strings.Replace(table(t), "root@", "nobody:secret@", 1)), sqlstore.Options{})
	require.ErrorContains(t, err, "Access denied")
	require.NotContains(t, err.Error(), "secret")

	s, err := sqlstore.New(open(t, "root@tcp(127.0.0.1:1)/none"), sqlstore.Options{})
	require.NoError(t, err)
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}})
	require.ErrorIs(t, err, rowstore.ErrAway)
}

// TestStandsStillWhenOpened: a server that does not answer holds New for a moment only. A wrong name is then told by the
// first booking, at once, and not waited for.
func TestStandsStillWhenOpened(t *testing.T) {
	t.Parallel()
	plain := strings.Replace(table(t), "?multiStatements=true", "", 1)
	db := open(t, plain)
	db.SetMaxOpenConns(1)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	s, err := sqlstore.New(db, sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, held.Close())
	_, err = s.Book(t.Context(), &store.Booking{Charges: []store.Charge{hourly(1)}, MaxWait: store.AnyWait})
	require.ErrorAs(t, err, new(*store.OptionError))
	require.ErrorContains(t, err, "multiStatements=true")
}
