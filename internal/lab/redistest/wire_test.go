package redistest_test

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A line is a connection through a wire.
type line struct {
	*testing.T
	net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, w *redistest.Wire) line {
	conn, err := net.Dial("tcp", w.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	// It only keeps a failure from lasting forever.
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return line{t, conn, bufio.NewReader(conn)}
}

func (l line) ping() {
	_, err := fmt.Fprint(l, "PING\r\n")
	require.NoError(l, err)
}

func (l line) pong() {
	text, err := l.replies.ReadString('\n')
	require.NoError(l, err)
	require.Equal(l, "+PONG\r\n", text)
}

// silent requires that nothing has come by the time that another connection,
// which was asked later, was answered.
func (l line) silent(other line) {
	other.ping()
	other.pong()
	require.NoError(l, l.SetReadDeadline(time.Now()))
	_, err := l.replies.ReadByte()
	var timeout net.Error
	require.ErrorAs(l, err, &timeout)
	require.True(l, timeout.Timeout())
	require.NoError(l, l.SetReadDeadline(time.Now().Add(30*time.Second)))
}

func TestWire(t *testing.T) {
	server := redistest.Single(t)
	w, other := redistest.NewWire(t, server.Addr), dial(t, redistest.NewWire(t, server.Addr))
	l := dial(t, w)
	l.ping()
	l.pong()

	w.Hold()
	l.ping()
	l.silent(other)
	w.Mend()
	l.pong()

	w.Deafen()
	l.ping()
	l.silent(other)
	fresh := dial(t, w)
	fresh.ping()
	fresh.pong()
	l.silent(other)

	w.Delay(0, 20*time.Millisecond)
	begin := time.Now()
	fresh.ping()
	fresh.ping()
	fresh.pong()
	fresh.pong()
	require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)

	w.Disconnect()
	_, err := fresh.replies.ReadByte()
	require.Error(t, err)
	cut := dial(t, w)
	_, err = cut.replies.ReadByte()
	require.Error(t, err)
	w.Mend()
	again := dial(t, w)
	again.ping()
	again.pong()
}
