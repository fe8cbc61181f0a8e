package benchmarks

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	rounds = flag.Int("rounds", 1, "how many turns each contestant of Shared has")
	turn   = flag.Duration("turn", 100*time.Millisecond, "how long one turn of Shared is")
)

// plentyShared is a limit for each second that no benchmark with Redis reaches.
const plentyShared = 10_000_000

// BenchmarkShared is a start that has room, in a fleet, for workers in one or
// several processes. All peers use the same server and take turns.
func BenchmarkShared(b *testing.B) {
	for _, shape := range []struct {
		processes, workers int
		crowd              bool
	}{
		{1, 1, false}, {1, 64, false}, {1, 512, false}, {4, 64, false}, {4, 64, true},
	} {
		keys := "1-key"
		if shape.crowd {
			keys = fmt.Sprintf("%d-keys", manyKeys)
		}
		b.Run(fmt.Sprintf("%s/%dx%d", keys, shape.processes, shape.workers), func(b *testing.B) {
			tallies := takeTurns(b, peers, shape.processes, order{
				Workers: shape.workers, Crowd: shape.crowd, Limit: limit{plentyShared, time.Second},
			})
			for i, p := range peers {
				b.Run(p.name, func(b *testing.B) { tallies[i].report(b, peers[base].name, &tallies[base]) })
			}
		})
	}
}

// base is the peer that others are compared with.
const base = 1

// takeTurns gives each peer a turn in each round, so that whatever else the
// machine does meets all of them.
func takeTurns(b *testing.B, peers []peer, processes int, o order) []tally {
	b.Helper()
	s, c := newServer(b), newCrew(b, processes)
	tallies := make([]tally, len(peers))
	play := func(i int, load time.Duration) (done, meter) {
		o.Peer, o.Redis, o.Load = peers[i].name, s.database(i), load
		before := s.read(b)
		d := do(b, c, o)
		return d, s.read(b).since(before)
	}
	for i := range peers {
		play(i, *turn/4) // opens connections and loads scripts
	}
	for round := range *rounds {
		for k := range peers {
			i := (round + k) % len(peers)
			d, m := play(i, *turn)
			tallies[i].add(d, m)
			requireKeys(b, peers[i].name, s.keys(b, i), o.Crowd)
		}
	}
	return tallies
}

// fewKeys are as many as one budget may need: the budget itself, and what each
// process notes of it.
const fewKeys = 8

// requireKeys checks that a peer keeps one budget, or many different ones.
func requireKeys(b *testing.B, name string, keys int, crowd bool) {
	b.Helper()
	if crowd {
		require.Greater(b, keys, 100, "premise: %s keeps many budgets", name)
		return
	}
	require.Positive(b, keys, "premise: %s keeps a budget", name)
	require.LessOrEqual(b, keys, fewKeys, "premise: %s keeps one budget", name)
}

// A tally is what one peer did in all its turns.
type tally struct {
	rates                       []float64 // starts a second, turn by turn
	medians                     []float64 // how long a call took of a worker that was alone, in microseconds
	calls, trips, cpu, commands float64
}

func (t *tally) add(d done, m meter) {
	t.rates = append(t.rates, float64(d.Calls)/d.Took.Seconds())
	t.medians = append(t.medians, float64(d.Median)/float64(time.Microsecond))
	t.calls += float64(d.Calls)
	t.trips += float64(d.Trips)
	t.cpu += m.cpu
	t.commands += m.commands
}

// report compares round by round.
func (t *tally) report(b *testing.B, name string, peer *tally) {
	times := make([]float64, len(t.rates))
	for i, r := range t.rates {
		times[i] = r / peer.rates[i]
	}
	require.Positive(b, t.calls, "premise: starts were taken")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(t.rates), "acquires/s")
	b.ReportMetric(median(times), "times-"+name)
	if t.medians[0] > 0 {
		for i, m := range t.medians {
			times[i] = m / peer.medians[i]
		}
		b.ReportMetric(median(t.medians), "median-us")
		b.ReportMetric(median(times), "median-times-"+name)
	}
	b.ReportMetric(t.trips/t.calls, "trips/acquire")
	b.ReportMetric(t.commands/t.calls, "commands/acquire")
	b.ReportMetric(t.cpu/t.calls, "redis-us/acquire")
}
