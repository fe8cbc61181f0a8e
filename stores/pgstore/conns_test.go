package pgstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP10_AConnectionIsWaitedFor: a caller that finds all connections in use waits for one as long as a new one would take, and makes a new one only then. A program
// whose calls overlap a little needs no further connection for that.
func TestP10_AConnectionIsWaitedFor(t *testing.T) {
	const dials = 30 * time.Millisecond
	for _, c := range []struct {
		name  string
		keeps time.Duration // for how long the first caller keeps its connection
		came  time.Duration // how long the second caller waits
		made  int
	}{
		{"not in use", -1, 0, 1},
		{"soon free", dials - time.Millisecond, dials - time.Millisecond, 1},
		{"long in use", time.Minute, 2 * dials, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made := 0
				all := newConns(4, func(context.Context) (*conn, error) {
					made++
					time.Sleep(dials)
					return new(conn), nil
				})

				first, err := all.get(t.Context())
				require.NoError(t, err)
				if c.keeps < 0 {
					all.put(first)
				} else {
					time.AfterFunc(c.keeps, func() { all.put(first) })
				}

				began := time.Now()
				second, err := all.get(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.came, time.Since(began))
				require.Equal(t, c.made, made)
				require.Equal(t, c.made == 1, second == first)
			})
		})
	}
}

// TestP10_NobodyWaitsForAConnectionThatFailed: a connection that could not be made, or is dropped, leaves the next caller free to make one at once.
func TestP10_NobodyWaitsForAConnectionThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		all := newConns(4, func(context.Context) (*conn, error) {
			time.Sleep(time.Second)
			return new(conn), fails
		})
		first, err := all.get(t.Context())
		require.NoError(t, err)
		all.put(first)
		_, _, _ = all.take(time.Now()) // the only connection is in use

		// Two more callers come. The wait of the first one is over first, and its connection fails.
		fails = context.DeadlineExceeded
		ended := make(chan time.Duration, 2)
		began := time.Now()
		for range 2 {
			go func() {
				_, err := all.get(t.Context())
				require.ErrorIs(t, err, fails)
				ended <- time.Since(began)
			}()
		}
		require.Equal(t, 2*time.Second, <-ended)
		require.Equal(t, 2*time.Second, <-ended)

		// Without a connection in use, nobody waits.
		all.inUse = 0
		began = time.Now()
		_, err = all.get(t.Context())
		require.ErrorIs(t, err, fails)
		require.Equal(t, time.Second, time.Since(began))
	})
}
