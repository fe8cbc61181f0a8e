package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestP4_PatienceNeedNotAgree lets callers of different patience share a call.
// Each is booked, or refused, by its own, as if it had been alone.
func TestP4_PatienceNeedNotAgree(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for name, patience := range map[string]func(i int) time.Duration{
		"growing":   func(i int) time.Duration { return 4500*time.Millisecond + time.Duration(i)*500*time.Millisecond },
		"shrinking": func(i int) time.Duration { return 8500*time.Millisecond - time.Duration(i)*500*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, tap := loaded(t, server.Client(t), isScript)
				paced := charge("paced", throttle.LeakyBucket(1, time.Second))
				var got []**outcome
				for i := range 9 {
					k := booking(paced)
					k.MaxWait = patience(i)
					got = append(got, bookAside(t.Context(), s, k))
				}
				close(tap.pass)
				synctest.Wait()
				next := time.Duration(0)
				for i, o := range got {
					require.NoError(t, (*o).err)
					require.Equal(t, next <= patience(i), (*o).grant.OK, "caller %d", i)
					if (*o).grant.OK {
						require.Equal(t, next, (*o).grant.Wait, "caller %d", i)
						next += time.Second
					}
				}
				require.LessOrEqual(t, len(tap.names()), 3)
			})
		})
	}
}
