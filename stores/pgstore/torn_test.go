package pgstore_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
)

// A tornConn loses the end of what is written, and all that comes later. The server is not told, as if the network
// had failed in the middle of a trip.
type tornConn struct {
	net.Conn
	next *atomic.Bool // the next trip of a step is torn
	torn atomic.Bool
}

// syncLength is that of the message that ends a trip.
const syncLength = 5

func (c *tornConn) Write(b []byte) (int, error) {
	if c.torn.Load() {
		return len(b), nil
	}
	if bytes.Contains(b, []byte("/node-")) && c.next.CompareAndSwap(true, false) {
		c.torn.Store(true)
		_, err := c.Conn.Write(b[:len(b)-syncLength])
		return len(b), err
	}
	return c.Conn.Write(b)
}

func (c *tornConn) Close() error {
	if c.torn.Load() {
		return nil
	}
	return c.Conn.Close()
}

// TestP12_TornTrip: a program has the lock, and the server has not got the end of the program's trip. Then the server does
// not count how long the program stands still. Others go on all the same.
func TestP12_TornTrip(t *testing.T) {
	soak.Only(t) // it takes as long as programs wait for a lock
	server := newServer(t)
	var next atomic.Bool
	o := pgstore.Options{BeforeConnect: func(_ context.Context, c *pgx.ConnConfig) error {
		dial := c.DialFunc
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return &tornConn{Conn: conn, next: &next}, err
		}
		return nil
	}}
	stands, err := pgstore.New(server.URL(), o)
	require.NoError(t, err)
	others, err := pgstore.New(server.URL(), pgstore.Options{})
	require.NoError(t, err)
	b := &store.Booking{MaxWait: store.AnyWait, Charges: []store.Charge{{
		Budget: store.Budget{Policy: "hourly", Key: [16]byte{1}}, Limit: store.PerHour(10), Cost: 1,
	}}}
	for _, s := range []store.Store{stands, others} { // statements are prepared now
		_, err := s.Book(t.Context(), b)
		require.NoError(t, err)
	}
	next.Store(true)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = stands.Book(ctx, b)
	}()
	require.Eventually(t, func() bool { return !next.Load() }, time.Minute, time.Millisecond)
	leave()
	<-left
	within, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	_, err = others.Book(within, b)
	require.NoError(t, err)
}
