package redisstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// A wiretap hears all that a server is sent: the commands, as MONITOR tells them,
// with keys, values and scripts; and what is published.
type wiretap struct {
	client   *redis.Client
	commands chan string // all of them, at the end
	messages chan string
}

// lastWord ends both.
const lastWord = "the-last-word-of-the-sweep"

// listenIn needs the server's password, because it asks for what only an
// operator may hear.
func listenIn(t *testing.T, server *redistest.Server, password string) *wiretap {
	t.Helper()
	o := server.Options()
	o.Password = password
	client := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "slowlog-max-len", "100000").Err())
	return &wiretap{
		client:   client,
		commands: hearRaw(t, server.Addr, password, "MONITOR"),
		messages: hearRaw(t, server.Addr, password, "PSUBSCRIBE *"),
	}
}

// hearRaw returns all that a connection gets after a command, up to the last word.
func hearRaw(t *testing.T, addr, password, command string) chan string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	fmt.Fprintf(conn, "AUTH %s\r\n", password)
	answer := make([]byte, len("+OK\r\n"))
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", string(answer))
	fmt.Fprintf(conn, "%s\r\n", command)
	answer = make([]byte, 5) // the command has begun
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)

	all := make(chan string, 1)
	go func() {
		var heard bytes.Buffer
		buf := make([]byte, 1<<16)
		for {
			n, err := conn.Read(buf)
			heard.Write(buf[:n])
			if err != nil || bytes.Contains(heard.Bytes(), []byte(lastWord)) {
				all <- heard.String()
				return
			}
		}
	}()
	return all
}

// stop returns what was heard, by where it was heard.
func (w *wiretap) stop(t *testing.T) map[string]string {
	t.Helper()
	ctx := t.Context()
	heard := map[string]string{
		"CLIENT LIST": w.client.ClientList(ctx).Val(),
		"INFO":        w.client.Info(ctx, "everything").Val(),
		"keys":        w.everyKey(t),
	}
	slow, err := w.client.SlowLogGet(ctx, -1).Result()
	require.NoError(t, err)
	heard["SLOWLOG"] = fmt.Sprintf("%+v", slow)
	require.NoError(t, w.client.Publish(ctx, lastWord, lastWord).Err())
	heard["MONITOR"], heard["messages"] = <-w.commands, <-w.messages
	return heard
}

// everyKey returns all keys with all values, as they are and as they are dumped.
func (w *wiretap) everyKey(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, key := range keys(t, w.client) {
		value, err := w.client.Get(t.Context(), key).Result()
		if errors.Is(err, redis.Nil) {
			continue // it has expired
		}
		require.NoError(t, err, key)
		dump, err := w.client.Dump(t.Context(), key).Result()
		if !errors.Is(err, redis.Nil) {
			require.NoError(t, err, key)
		}
		fmt.Fprintf(&all, "%s\n%s\n%q\n%s\n", key, value, value, dump)
	}
	return all.String()
}
