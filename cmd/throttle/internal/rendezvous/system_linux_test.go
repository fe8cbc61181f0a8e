package rendezvous

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOwnerIn: the user of a socket is read from the line that has both of its addresses. A socket whose process has
// closed it has no user.
func TestOwnerIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tcp")
	require.NoError(t, os.WriteFile(path, []byte(`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1C02 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7395548 2 000000003039050d 100 0 0 10 0
   1: 0100007F:C001 0100007F:1C02 01 00000000:00000000 00:00000000 00000000  1000        0 7395549 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:C002 0100007F:1C02 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0000000000000000
   3: 0100007F:C003 0100007F:1C02
`), 0o600))

	entryOf := func(address string, mapped bool) string {
		return entry(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)), mapped)
	}
	for _, c := range []struct {
		local string
		uid   int
		found bool
	}{{"127.0.0.1:49153", 1000, true}, {"127.0.0.1:49154", 0, false}, {"127.0.0.1:49155", 0, false}, {"127.0.0.1:49156", 0, false}} {
		uid, found := ownerIn(path, entryOf(c.local, false), entryOf("127.0.0.1:7170", false))
		require.Equal(t, c.found, found, c.local)
		require.Equal(t, c.uid, uid, c.local)
	}

	_, found := ownerIn(path+"x", "", "")
	require.False(t, found)
	require.Equal(t, "0000000000000000FFFF00000100007F:1C02", entryOf("127.0.0.1:7170", true))
	require.Equal(t, "0000000000000000FFFF00000100007F:1C02", entryOf("[::ffff:127.0.0.1]:7170", true))
}

// TestIsOwn: a connection of this process is one of this user, over IPv4 and over IPv6.
func TestIsOwn(t *testing.T) {
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", network)
		require.NoError(t, err)
		defer l.Close()
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		require.True(t, isOwn(conn.LocalAddr(), conn.RemoteAddr()))
		require.NoError(t, conn.Close())
		require.False(t, isOwn(conn.LocalAddr(), conn.RemoteAddr()), "nobody's")
	}
}
