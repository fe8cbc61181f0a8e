//go:build unix

package redistest_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func TestSingleServes(t *testing.T) {
	s := redistest.Single(t)
	requireServes(t, s.Client(t))

	options, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	require.Equal(t, s.Addr, options.Addr)
	require.Equal(t, s.DB, options.DB)
}

func TestSinglePassesArguments(t *testing.T) {
	c := redistest.Single(t, "--maxmemory", "12345678").Client(t)
	got, err := c.ConfigGet(t.Context(), "maxmemory").Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"maxmemory": "12345678"}, got)
}

func TestRestartIsEmptyOnTheSamePort(t *testing.T) {
	s := redistest.Single(t)
	c := s.Client(t)
	requireServes(t, c)
	addr, pid := s.Addr, s.PID()

	s.Restart()

	require.Equal(t, addr, s.Addr)
	require.NotEqual(t, pid, s.PID())
	requireGone(t, pid)
	require.Equal(t, redis.Nil, c.Get(t.Context(), "key").Err())
}

func TestRestartAfterStopAndKill(t *testing.T) {
	for name, end := range map[string]func(*redistest.Server){
		"stop":          (*redistest.Server).Stop,
		"kill":          (*redistest.Server).Kill,
		"stop a paused": func(s *redistest.Server) { s.Pause(); s.Stop() },
		"kill a paused": func(s *redistest.Server) { s.Pause(); s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Single(t)
			pid := s.PID()
			end(s)
			requireGone(t, pid)
			_, err := net.Dial("tcp", s.Addr)
			require.ErrorContains(t, err, "refused")

			s.Restart()
			requireServes(t, s.Client(t))
		})
	}
}

func TestPausedServerDoesNotAnswer(t *testing.T) {
	s := redistest.Single(t)
	options := s.Options()
	options.MaxRetries = -1
	options.ReadTimeout = 20 * time.Millisecond
	hasty := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, hasty.Close()) })
	patient := s.Client(t)
	requireServes(t, patient)

	s.Pause()
	var timeout net.Error
	require.ErrorAs(t, hasty.Ping(t.Context()).Err(), &timeout)
	require.True(t, timeout.Timeout())

	s.Continue()
	require.NoError(t, patient.Ping(t.Context()).Err())
}

func TestPortInUse(t *testing.T) {
	s := redistest.Single(t)
	require.Equal(t, redistest.ErrInUse, redistest.StartAt(t.TempDir(), s))
	requireServes(t, s.Client(t))
}

// A recorder is a test that keeps what it failed with.
type recorder struct {
	testing.TB
	failure any
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.failure = args[0]
	runtime.Goexit()
}

func TestMissingServerFails(t *testing.T) {
	t.Setenv("REDIS_SERVER", "no-such-server")
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Single(r)
	}()
	<-done

	err, ok := r.failure.(error)
	require.True(t, ok, "Single went on without a server")
	require.EqualError(t, err, "redistest: no no-such-server on PATH: run `make redis`, or install it "+
		"(apt-get install redis-server, brew install redis, apk add redis), "+
		"or name another program in REDIS_SERVER")
}
