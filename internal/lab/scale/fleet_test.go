package main

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

func TestMain(m *testing.M) {
	crew.Main(role, memberMain)
	redis.SetLogger(quiet{})
	os.Exit(redistest.Main(m))
}

// backendOf returns a backend with a server of its own.
func backendOf(t *testing.T) *redissim.Backend {
	b, err := redissim.Connect(redistest.Single(t).Addr)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// small is a fleet that is simulated in no time.
var small = scene{
	Nodes: 8, Upstreams: 1, Shards: 3, PerSecond: 20, Trip: time.Millisecond,
	Settle: 2 * time.Second, Length: 6 * time.Second, Seed: 1,
}

// TestP1_SimulatedFleets never pass the limit, and reach it if they want to.
func TestP1_SimulatedFleets(t *testing.T) {
	b := backendOf(t)
	for name, s := range map[string]scene{
		"waiting": {Callers: 3}, "at random": {Share: 0.9}, "one server": {Callers: 3, Shards: -3},
	} {
		t.Run(name, func(t *testing.T) {
			one := small
			one.Callers, one.Share, one.Shards = s.Callers, s.Share, small.Shards+s.Shards
			f := played(t, b, one).figures()
			require.LessOrEqual(t, f.Worst, 20)
			if one.Callers > 0 {
				require.Equal(t, 20, f.Worst)
				require.Greater(t, f.Used, 0.99)
			}
		})
	}
}

// TestP4_ServersAreCalledOnceAStart where there is room, and each by the upstreams whose
// slots it holds: loads add up.
func TestP4_ServersAreCalledOnceAStart(t *testing.T) {
	s := small
	s.Upstreams, s.Share = 6, 0.2
	r := played(t, backendOf(t), s)
	starts := make([]int, s.Shards)
	for u, samples := range r.Samples {
		for _, one := range samples {
			require.True(t, one.OK)
		}
		starts[redissim.ShardOf(redissim.SlotOf("{"+name(u)+"}"), s.Shards)] += len(samples)
	}
	calls := make([]int, s.Shards)
	for i := range calls {
		calls[i] = r.Before[i].Plus(r.Loads[i]).Calls
	}

	// A program that meets a server without scripts looks at the server, and brings the two scripts that tell the states of budgets, with
	// two commands each. Two programs may meet the server at one moment. After that each start is one call.
	const firstMeeting, atOnce = 1 + 2*2, 2
	for i := range calls {
		require.GreaterOrEqual(t, calls[i], starts[i])
		require.LessOrEqual(t, calls[i], starts[i]+atOnce*firstMeeting)
	}
	require.NotContains(t, starts, 0)
}

// TestSubscriptions of nodes that wait: one for each upstream in a cluster, else one in all.
// Each sends itself a message a second.
func TestSubscriptions(t *testing.T) {
	b := backendOf(t)
	s := small
	s.Upstreams, s.Callers = 3, 1
	for shards, subscriptions := range []int{s.Nodes, s.Nodes * s.Upstreams} {
		s.Shards = shards
		r := played(t, b, s)
		require.Equal(t, subscriptions*int(s.Length/time.Second), r.Loads[0].Beats)
		require.Equal(t, r.Loads[0].Beats, r.Loads[0].Delivered-r.Loads[0].Messages)
	}
}

// TestP12_SimulatedFailover holds all callers of the shard until a replica takes over, and
// passes no limit, whatever the replica has.
func TestP12_SimulatedFailover(t *testing.T) {
	soak.WithoutRace(t)
	b := backendOf(t)
	for name, lost := range map[string]bool{"all": false, "nothing": true} {
		t.Run(name, func(t *testing.T) {
			s := small
			s.Upstreams, s.Callers = 4, 1
			var f failover
			inBubble(t, name, func() (err error) {
				f, err = s.failover(b, 2*time.Second, lost)
				return err
			})
			require.Equal(t, 20, f.Worst)
			require.GreaterOrEqual(t, f.Longest, 2*time.Second)
			require.Positive(t, f.First)
			require.Positive(t, f.Missed)
			require.Positive(t, f.Slots)
		})
	}
}

// TestMeasuredFleet has processes play the same scene: each plays its own part of it.
func TestMeasuredFleet(t *testing.T) {
	s := small
	s.Nodes, s.Shards, s.Share, s.Settle, s.Length = 2, 0, 0.5, 100*time.Millisecond, time.Second
	r, err := s.measure(redistest.Single(t).Addr)
	require.NoError(t, err)
	simulated := played(t, backendOf(t), s)
	calls := func(r *record) map[string]int {
		count := map[string]int{}
		for _, one := range r.Samples[0] {
			count[one.Worker]++
		}
		return count
	}
	for worker, n := range calls(r) { // a process that had to wait for a processor came to less of it
		require.LessOrEqual(t, n, calls(simulated)[worker])
	}
	require.Len(t, calls(r), 2)
	require.Positive(t, r.Loads[0].Calls)
	require.LessOrEqual(t, r.figures().Worst, 20)
}
