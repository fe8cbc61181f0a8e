//go:build unix

package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// An unreadConn reads nothing while its program stands still.
type unreadConn struct {
	net.Conn
	stands *atomic.Bool
	ended  <-chan struct{}
}

func (c *unreadConn) Read(b []byte) (int, error) {
	if c.stands.Load() {
		<-c.ended
	}
	return c.Conn.Read(b)
}

// TestP8_UnreadAnswer: a program that has locked a group stands still, and the server has more to send to it than the network takes. Others
// go on all the same.
func TestP8_UnreadAnswer(t *testing.T) {
	t.Parallel()
	soak.Only(t)                      // it takes as long as the server waits for a program
	const rows, length = 800, 8 << 10 // more than the buffers of a connection hold
	dsn := table(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	var stands atomic.Bool
	ended := make(chan struct{})
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		return &unreadConn{conn, &stands, ended}, err
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	slow, fast := sqlstore.NewDatabase(db), sqlstore.NewDatabase(open(t, dsn))
	var keys []string
	for i := range rows {
		keys = append(keys, fmt.Sprint("row-", i))
	}
	for i := 0; i < rows; i += 100 {
		require.NoError(t, fast.Transact(t.Context(), "group", nil, func(tx rowstore.Tx) error {
			for _, key := range keys[i : i+100] {
				tx.Put(key, make([]byte, length), time.Hour)
			}
			return nil
		}))
	}
	_, _, err = add(slow, "a", nil)
	require.NoError(t, err)
	stands.Store(true)
	standing, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = slow.Transact(standing, "group", keys, func(rowstore.Tx) error { return nil })
	}()
	root := open(t, dsn)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, root.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query' AND info LIKE 'SELECT TIMESTAMPDIFF%'").Scan(&n))
		return n > 0
	}, time.Minute, time.Millisecond, "the server is not sending")
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // many times as long as that takes
	defer stop()
	require.NoError(t, fast.Transact(ctx, "group", []string{"a"}, func(tx rowstore.Tx) error {
		_, err := tx.Get("a")
		tx.Put("a", []byte("+"), time.Hour)
		return err
	}))
	leave()
	close(ended)
	<-left
}
