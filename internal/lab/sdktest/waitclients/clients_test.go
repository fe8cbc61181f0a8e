//go:build unix

package waitclients

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestClients: programs in four languages do work under permits of one process, over one Redis.
func TestClients(t *testing.T) {
	s := newScene(t)
	t.Run("together", s.testTogether)
	for _, p := range s.programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			t.Run("refused", func(t *testing.T) { s.testRefused(t, p) })
			t.Run("held for long", func(t *testing.T) { s.testHeldForLong(t, p) })
			t.Run("lost answer", func(t *testing.T) { s.testLostAnswer(t, p) })
			t.Run("killed", func(t *testing.T) { s.testKilled(t, p) })
			t.Run("failed", func(t *testing.T) { s.testFailed(t, p) })
			if p.places {
				t.Run("placed", func(t *testing.T) { s.testPlaced(t, p) })
			}
			if p.settles {
				t.Run("settled", func(t *testing.T) { s.testSettled(t, p) })
			}
		})
	}
}

// testTogether: no more are in flight than the limit, of all languages together.
func (s *scene) testTogether(t *testing.T) {
	var all sync.WaitGroup
	for _, p := range s.programs {
		for range 3 {
			all.Go(func() {
				code, talk := s.run(t, p, "flights", "all", "60")
				if code != 0 {
					t.Errorf("%s: %d %s", p.name, code, talk)
				}
			})
		}
	}
	all.Wait()
	require.EqualValues(t, 12, s.arrivals("flights", "all"))
	require.LessOrEqual(t, s.mostFlying.Load(), int64(2))
	require.Zero(t, s.status(t, "flights", "all").Used)
}

// testRefused: what cannot start in time is not done, and the program learns why.
func (s *scene) testRefused(t *testing.T, p program) {
	_, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "scarce", Key: p.name})
	require.NoError(t, err)
	code, talk := s.run(t, p, "scarce", p.name, "5")
	require.Equal(t, 75, code, talk)
	require.Contains(t, talk, "scarce")
	require.Zero(t, s.arrivals("scarce", p.name))
	code, talk = s.run(t, p, "no-such", p.name, "5")
	require.Equal(t, 75, code, talk)
}

// testHeldForLong: a client that waits for longer than one answer may take asks again.
func (s *scene) testHeldForLong(t *testing.T, p program) {
	permit, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "alone", Key: p.name})
	require.NoError(t, err)
	before := len(s.asked(p.name))
	cmd, talk := s.start(t, p, "alone", p.name, "60")
	await(t, func() bool { return len(s.asked(p.name)) >= before+2 })
	require.Zero(t, s.arrivals("alone", p.name))
	permit.Release()
	require.NoError(t, cmd.Wait(), talk.String())
	require.EqualValues(t, 1, s.arrivals("alone", p.name))
	require.Zero(t, s.status(t, "alone", p.name).Used)
}

// testLostAnswer: a client whose answer is lost gets its permit all the same, and pays once.
func (s *scene) testLostAnswer(t *testing.T, p program) {
	s.mu.Lock()
	for s.losesOf != "" { // a client beside this one
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	s.losesOf = p.name
	s.mu.Unlock()
	before, used := len(s.asked(p.name)), s.status(t, "tokens", p.name).Used
	code, talk := s.run(t, p, "tokens", p.name, "60")
	require.Zero(t, code, talk)
	keys := s.asked(p.name)[before:]
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
	require.EqualValues(t, 1, s.arrivals("tokens", p.name))
	require.Equal(t, used+1, s.status(t, "tokens", p.name).Used)
}

// testKilled: the place of a client that is killed while it waits is free.
func (s *scene) testKilled(t *testing.T, p program) {
	permit, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "alone", Key: p.name})
	require.NoError(t, err)
	defer permit.Release()
	arrived := s.arrivals("alone", p.name)
	cmd, _ := s.start(t, p, "alone", p.name, "60")
	await(t, func() bool { return s.status(t, "alone", p.name).Waiting == 1 })
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)) // and its children, as a terminal does
	_ = cmd.Wait()
	await(t, func() bool { return s.status(t, "alone", p.name).Waiting == 0 })
	require.Equal(t, arrived, s.arrivals("alone", p.name))
}

// testFailed: a permit is released when the work fails.
func (s *scene) testFailed(t *testing.T, p program) {
	code, talk := s.run(t, p, "alone", p.name, "60", "fail")
	require.Equal(t, 3, code, talk)
	require.Zero(t, s.status(t, "alone", p.name).Used)
}

// testPlaced: a client that would have to wait is told a place, and starts with it when there is room.
func (s *scene) testPlaced(t *testing.T, p program) {
	permit, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "alone", Key: p.name})
	require.NoError(t, err)
	arrived := s.arrivals("alone", p.name)
	code, talk := s.run(t, p, "alone", p.name, "0.1", "place=")
	require.Equal(t, 74, code, talk)
	code, talk = s.run(t, p, "alone", p.name, "0.1", "place="+strings.TrimSpace(talk))
	require.Equal(t, 74, code, talk)
	require.Equal(t, arrived, s.arrivals("alone", p.name))
	permit.Release()
	code, talk = s.run(t, p, "alone", p.name, "5", "place="+strings.TrimSpace(talk))
	require.Zero(t, code, talk)
	require.Equal(t, arrived+1, s.arrivals("alone", p.name))
}

// testSettled: a client tells what the work cost, and that it was refused.
func (s *scene) testSettled(t *testing.T, p program) {
	used := s.status(t, "tokens", p.name).Used
	code, talk := s.run(t, p, "tokens", p.name, "60", "settle=7", "penalize=3000")
	require.Zero(t, code, talk)
	st := s.status(t, "tokens", p.name)
	require.Equal(t, used+7, st.Used)
	require.Greater(t, st.Paused, 40*time.Minute)
}

// await waits until something is so.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to be")
		}
	}
}
