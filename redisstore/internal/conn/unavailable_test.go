package conn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// to returns a Conn to an address that nobody has dialled.
func to(t *testing.T, addr string) *conn.Conn {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return conn.New(client)
}

// TestUnavailable: the error says for how long there was no answer, where from, and why; it
// is both the end of the caller's context and the failure of the last call.
func TestUnavailable(t *testing.T) {
	const addr = "10.0.0.1:6379"
	left := errors.New("left")
	failure := fmt.Errorf("redisstore: %s: %w", addr, refused)
	for name, c := range map[string]struct {
		after time.Duration
		fails int
		ended error
		want  string
	}{
		"silence":            {1234567 * time.Microsecond, 0, left, "redisstore: no answer for 1.23s from " + addr},
		"time up":            {200*time.Millisecond + 1, 0, nil, "redisstore: no answer for 200ms from " + addr},
		"failures":           {time.Minute, 3, left, "redisstore: no answer for 1m0s (failed calls: 3): " + addr + ": dial tcp: connection refused"},
		"left in time":       {49 * time.Millisecond, 0, left, "left"},
		"left, but it fails": {49 * time.Millisecond, 1, left, "redisstore: no answer for 49ms (failed calls: 1): " + addr + ": dial tcp: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			cn := to(t, addr)
			synctest.Test(t, func(t *testing.T) {
				u := conn.Unavailability{Since: time.Now()}
				for range c.fails {
					u.Add(failure)
				}
				time.Sleep(c.after)
				err := cn.Unavailable(u, c.ended)
				require.EqualError(t, err, c.want)
				require.Equal(t, c.ended != nil, errors.Is(err, left))
				require.Equal(t, c.fails > 0, errors.Is(err, refused))
			})
		})
	}
}

// TestAnAddressIsNoSecret, but what stands before an @ may be.
func TestAnAddressIsNoSecret(t *testing.T) {
	u := conn.Unavailability{Since: time.Now().Add(-time.Minute)}
	err := to(t, "redis://me:pa55word@10.0.0.1:6379/0").Unavailable(u, context.Canceled)
	require.ErrorContains(t, err, " from …@10.0.0.1:6379/0")
	require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), "pa55")
}

// TestAwait: an answer, the end of a context and the end of time; and who is told why.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		done, left, up, failed time.Duration // 0: never
		want                   bool
		took, told             time.Duration // told 0: never
	}{
		"answer":                {done: 3, want: true, took: 3},
		"late answer":           {done: 3000, want: true, took: 3000, told: 1000},
		"left":                  {left: 3, took: 3},
		"left late":             {left: 3000, took: 3000, told: 1000},
		"time up":               {up: 3, took: 3},
		"time up late":          {up: 3000, took: 3000, told: 1000},
		"failure, then answer":  {failed: 2, done: 3, want: true, took: 3, told: 2},
		"failure, then time up": {failed: 2, up: 3, took: 3, told: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				since := func() time.Duration { return time.Since(begin) / time.Millisecond }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done, failed, up := make(chan struct{}), make(chan struct{}), make(chan time.Time)
				for after, f := range map[*time.Duration]func(){
					&c.done: func() { close(done) }, &c.left: cancel, &c.up: func() { close(up) }, &c.failed: func() { close(failed) },
				} {
					if *after > 0 {
						time.AfterFunc(*after*time.Millisecond, f)
					}
				}
				var told time.Duration
				require.Equal(t, c.want, conn.Await(ctx, done, up, failed, func() { told = since() }))
				require.Equal(t, c.took, since())
				require.Equal(t, c.told, told)
			})
		})
	}
}
