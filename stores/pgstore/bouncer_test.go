//go:build unix

package pgstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestBouncer: behind PgBouncer in transaction mode, programs have starts, and news in time though LISTEN does nothing there.
func TestBouncer(t *testing.T) {
	soak.Only(t)
	server := newServer(t)
	url := server.Bouncer() + "&default_query_exec_mode=exec" // older ones than 1.21 know no prepared statements
	charge := hourly(1_000_000)
	var c crowd
	c.come(t, 8, charge, open(t, url), open(t, url), open(t, server.URL()))
	c.awaits(t, 1000)
	c.ends()
	require.Equal(t, int(c.granted.Load()), used(t, open(t, url), charge))
	shared.NewsOfOthers(t, url)

	db := pgstore.NewDatabase(t, url, pgstore.Options{})
	woken := make(chan struct{})
	stop, err := db.(rowstore.Notifier).Listen("g", "me", func() {
		select {
		case woken <- struct{}{}:
		case <-t.Context().Done():
		}
	})
	require.NoError(t, err)
	for end := time.Now().Add(2 * pgstore.ProbeWait); time.Now().Before(end); {
		<-woken
		require.False(t, pgstore.Hears(db))
	}
	stop()
}
