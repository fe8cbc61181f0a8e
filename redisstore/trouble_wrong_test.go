package redisstore_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// instead starts something that is not Redis.
func instead(t *testing.T, serve func(net.Conn)) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestTheWrongServer: whatever is asked in Redis' place, the error says where that
// is and what it said, and keeps the password to itself.
func TestTheWrongServer(t *testing.T) {
	t.Parallel() // its servers are its own
	const secret = "sesame-52"
	server := redistest.Single(t)
	do(t, server.Client(t), "CONFIG", "SET", "requirepass", secret)
	http := instead(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}
	})
	echo := instead(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	sentinel := redistest.Sentinel(t).Sentinel.Addr
	for _, try := range []struct {
		name string
		o    redis.Options
		want string
	}{
		{"no password", redis.Options{Addr: server.Addr}, server.Addr + ": NOAUTH Authentication required."},
		{"wrong password", redis.Options{Addr: server.Addr, Password: secret + "x"}, server.Addr + ": WRONGPASS "},
		{"wrong database", redis.Options{Addr: server.Addr, Password: secret, DB: 99}, server.Addr + ": ERR DB index is out of range"},
		{"HTTP", redis.Options{Addr: http, Password: secret}, http + `: redis: can't parse map reply: "HTTP/1.1 400 Bad Request"`},
		{"echo", redis.Options{Addr: echo, Password: secret}, echo + ": "},
		{"a Sentinel", redis.Options{Addr: sentinel}, sentinel + ": ERR unknown command 'evalsha'"},
		{"nobody", redis.Options{Addr: "127.0.0.1:1", Password: secret}, "dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(try.name, func(t *testing.T) {
			client := redis.NewClient(&try.o)
			defer client.Close()
			k := booking(hourly)
			k.MaxWait = 1500 * time.Millisecond
			saysWhy(t, try.want, func() error {
				_, err := redisstore.New(client, nil).Book(t.Context(), k)
				require.ErrorContains(t, err, "redisstore: ")
				require.NotContains(t, err.Error(), secret)
				return err
			})
		})
	}
	t.Run("a Sentinel that knows no such master", func(t *testing.T) {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "other", SentinelAddrs: []string{sentinel}, Password: secret})
		defer client.Close()
		_, err := redisstore.New(client, nil).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "(no Sentinel knows a master of that name)")
	})
	t.Run("no cluster", func(t *testing.T) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, Password: secret})
		defer client.Close()
		_, err := redisstore.New(client, nil).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "ERR This instance has cluster support disabled")
	})
}
