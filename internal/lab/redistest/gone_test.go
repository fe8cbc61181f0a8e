//go:build unix

package redistest_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// requireGone fails if the process still exists, were it as a zombie.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Equal(t, syscall.ESRCH, syscall.Kill(pid, 0), "process %d", pid)
}

func TestServersEndWithTheirTest(t *testing.T) {
	var pids []int
	note := func(servers ...*redistest.Server) {
		for _, s := range servers {
			require.NoError(t, syscall.Kill(s.PID(), 0))
			pids = append(pids, s.PID())
		}
	}
	t.Run("single", func(t *testing.T) { note(redistest.Single(t)) })
	t.Run("paused", func(t *testing.T) {
		s := redistest.Single(t)
		note(s)
		s.Pause()
	})
	t.Run("cluster", func(t *testing.T) { note(redistest.Cluster(t).Servers...) })
	t.Run("sentinel", func(t *testing.T) {
		s := redistest.Sentinel(t)
		note(s.Master, s.Replica, s.Sentinel)
	})
	require.Len(t, pids, 8)
	for _, pid := range pids {
		requireGone(t, pid)
	}
}
