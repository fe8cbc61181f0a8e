package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
)

// TestP12_Failover: the server is lost under load, and its synchronous standby takes over. The standby knows each start
// that was granted.
func TestP12_Failover(t *testing.T) {
	server := newServer(t)
	standby := followed(t, server)
	url := both(server, standby)
	charge := hourly(1_000_000)
	var c crowd
	c.come(t, 8, charge, open(t, url), open(t, url), open(t, url))
	c.awaits(t, 1000)
	server.Kill()
	standby.Promote()
	c.awaits(t, 500)
	c.ends()
	s := open(t, standby.URL())
	require.Eventually(t, func() bool { return used(t, s, charge) == int(c.granted.Load()) }, time.Minute, 10*time.Millisecond)
}

// followed starts a standby of a server, without which the server confirms nothing from now on.
func followed(t *testing.T, server *pgtest.Server) *pgtest.Server {
	t.Helper()
	// The standby does not wait for another one when it takes over.
	standby := server.Standby("standby", "synchronous_standby_names=")
	admin, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()"} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var state string
		err := admin.QueryRow(t.Context(), "SELECT sync_state FROM pg_stat_replication").Scan(&state)
		return err == nil && state == "sync"
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, admin.Close(t.Context()))
	return standby
}

// both is a URL of two servers: that which can be written to is used.
func both(a, b *pgtest.Server) string {
	return fmt.Sprintf("postgres://test@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write", a.Port, b.Port)
}
