// Scale says what large fleets cost, and prints it as tables: docs/internals/scale.md has them.
//
//	go run ./internal/lab/scale            # simulated: minutes
//	go run ./internal/lab/scale -measure   # compared with processes, on a quiet machine
//	go run ./internal/lab/scale -far       # the used share of a limit where Redis is far away
//	go run ./internal/lab/scale -room      # how long a start with room waits; sixty pods, four providers
//	go run ./internal/lab/scale -waiting   # what waiting costs Redis, in real time, on a quiet machine
//
// A simulated fleet is the real engine in virtual time: nodes are real stores with real
// clients, and a real server runs the real scripts. Only clock and wires are not real: see
// package redissim. What is counted does not depend on the machine. What a call costs the server's
// processor does: see costs.go. Loads of upstreams are added up for each shard of a cluster:
// see spread.go.
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// asTest runs f as a test, because package synctest gives virtual time to tests only, and
// ends the program.
func asTest(f func(*testing.T)) {
	testing.Init()
	if err := flag.CommandLine.Parse([]string{"-test.timeout=1h"}); err != nil {
		panic(err) // it is a flag of package testing
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "scale", F: f}}, nil, nil)
}

// played plays a scene in virtual time.
func played(t *testing.T, b *redissim.Backend, s scene) (r *record) {
	t.Helper()
	inBubble(t, fmt.Sprintf("%d nodes, %d upstreams", s.Nodes, s.Upstreams), func() (err error) {
		r, err = s.play(b)
		return err
	})
	return r
}

// inBubble calls f in virtual time, and fails the test if f fails.
func inBubble(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	synctest.Test(t, func(*testing.T) { err = f() })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// figures sum up a record. Counts are for each start, or for each second, except in load.
type figures struct {
	Starts    float64 // in a second, of each upstream
	Used      float64 // of the starts that the limit and its jitter allow
	Worst     int     // the most starts of one upstream in one interval of a second
	Calls     float64 // of scripts, for a start
	Published float64 // messages, for a start
	P50, P99  time.Duration
	Longest   time.Duration
	Jain      float64       // between callers in a closed loop
	load      redissim.Load // of all servers and upstreams together, while they were measured
}

// jitter is the time by which a window is longer by default, so that starts may be that late.
const jitter = 35 * time.Millisecond

// figures returns the figures of a record.
func (r *record) figures() (f figures) {
	var waits []time.Duration
	starts, used, fair := 0, 0.0, 0.0
	for _, samples := range r.Samples {
		var served []time.Duration
		var counted []fleet.Sample
		for _, s := range samples {
			if s.OK {
				served = append(served, s.Served)
			}

			if s.Served >= r.from && s.Served < r.to && s.OK {
				starts++
				waits = append(waits, s.Served-s.Asked)
			}

			// Callers that got no start count for fairness, too.
			if s.Served >= r.from {
				counted = append(counted, s)
			}
		}

		// Each upstream has a limit of its own.
		f.Worst = max(f.Worst, stat.Most(served, time.Second))
		used += stat.Used(served, r.from, r.to, r.PerSecond, time.Second)
		fair += fleet.Jain(counted)
	}

	// Means over the upstreams, and quantiles over all starts.
	n, seconds := float64(len(r.Samples)), r.Length.Seconds()
	f.Starts = float64(starts) / n / seconds
	f.Used = used / n * (1 + jitter.Seconds())
	if r.Callers > 0 {
		f.Jain = fair / n
	}

	f.P50, f.P99, f.Longest = stat.Quantile(waits, 0.5), stat.Quantile(waits, 0.99), stat.Quantile(waits, 1)
	var all redissim.Load
	for _, l := range r.Loads {
		all = all.Plus(l)
	}

	f.load = all
	f.Calls = float64(all.Calls) / float64(max(starts, 1))
	f.Published = float64(all.Published()) / float64(max(starts, 1))

	return f
}

// A report prints simulations and measurements as tables.
type report struct {
	t    *testing.T
	out  io.Writer
	b    *redissim.Backend
	cost costs
}

func (r report) say(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// costs measures what this machine adds, keeps it in r.cost, and prints it.
func (r *report) costs() {
	var err error
	if r.cost, err = measureCosts(r.t); err != nil {
		r.t.Fatal(err)
	}
	r.say("\n## What this machine adds: a busy server's processor, in microseconds\n")
	r.say("| a command | a message to oneself | to one more subscriber | to one more server | from a server | a connection | a subscribed one |")
	r.say("|---:|---:|---:|---:|---:|---:|---:|")
	c := r.cost
	r.say("| %.1f | %.1f | %.1f | %.1f | %.1f | %.0f bytes | %.0f bytes |", c.Command, c.Beat, c.Deliver, c.BusSend, c.BusTake, c.Conn, c.Listener)
}

// compared are the fleets that are measured, too.
func compared() (all []scene) {
	for _, s := range []scene{
		{Nodes: 4, Callers: 16}, {Nodes: 16, Callers: 4}, {Nodes: 64, Callers: 1}, {Nodes: 64, Callers: 4},
		{Nodes: 16, Share: 0.9}, {Nodes: 64, Share: 0.9}, {Nodes: 4, Share: 0.9, Upstreams: 50},
	} {
		s.Upstreams = max(1, s.Upstreams)
		s.PerSecond, s.Work, s.Trip = 40, 50*time.Millisecond, 300*time.Microsecond
		s.Settle, s.Length, s.Seed = 4*time.Second, 20*time.Second, 1
		all = append(all, s)
	}
	return all
}

// compare prints simulated fleets beside real processes.
func (r report) compare(fleets []scene) {
	r.say("\n## Simulated, and measured with as many processes, one server, 40/s\n")
	r.say("| processes | each | | starts/s | calls a start | messages a start | bytes a start | wait p50 | p99 | Jain | most in 1 s | Redis, µs a call |")
	r.say("|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")

	for _, s := range fleets {
		who := fmt.Sprintf("%d callers", s.Callers)
		if s.Callers == 0 {
			who = fmt.Sprintf("%.1f of the limit of %d upstreams", s.Share, s.Upstreams)
		}

		row := func(how string, rec *record, micros float64) figures {
			f := rec.figures()
			r.say("| %d | %s | %s | %.2f | %.3f | %.3f | %.0f | %v | %v | %s | %d | %.0f |", s.Nodes, who, how,
				f.Starts, f.Calls, f.Published, f.bytes(), short(f.P50), short(f.P99), f.jain(), f.Worst, micros)
			return f
		}

		// The same scene twice: simulated, and by real processes.
		simulated := played(r.t, r.b, s)
		calls := simulated.figures().load.Calls
		a := row("simulated", simulated, simulated.outlook(demand{}).cost(r.cost)*s.Length.Seconds()/float64(calls))

		measured, err := s.measure(redistest.Single(r.t).Addr)
		if err != nil {
			r.t.Fatal(err)
		}

		b := row("measured", measured, 1e6*measured.Busy*s.Length.Seconds()/float64(measured.Loads[0].Calls))
		off := func(x, y float64) string {
			if x == y {
				return "0 %"
			}
			return fmt.Sprintf("%+.1f %%", 100*(x/y-1))
		}

		r.say("| | | off by | %s | %s | %s | %s | %s | %s | | | |", off(a.Starts, b.Starts), off(a.Calls, b.Calls), off(a.Published, b.Published),
			off(a.bytes(), b.bytes()), off(float64(a.P50), float64(b.P50)), off(float64(a.P99), float64(b.P99)))
	}
}

// nodes prints fleets of one upstream, of each size with each demand, and returns the outlooks of the last size.
func (r report) nodes(sizes []int) (largest []outlook) {
	r.say("\n## One upstream of 40/s, simulated, 1 ms to Redis and back\n")
	r.say("| nodes | demand | starts/s | of what is possible | calls/s | a start | messages/s | wait p50 | p99 | Jain | most in 1 s | a call, µs | Redis, of a core |")
	r.say("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")

	for _, d := range demands {
		for i, n := range sizes {
			rec := played(r.t, r.b, d.scene(n))
			f, o := rec.figures(), rec.outlook(d)
			r.say("| %d | %s | %.1f | %.1f %% | %.0f | %.2f | %.1f | %v | %v | %s | %d | %.0f | %.2f %% |", n, d.name, f.Starts, 100*f.Used,
				o.calls, f.Calls, o.published, short(f.P50), short(f.P99), f.jain(), f.Worst, rec.Script, o.cost(r.cost)/1e4)
			if i == len(sizes)-1 {
				largest = append(largest, o)
			}
		}
	}

	return largest
}

// sums prints a cluster with many upstreams beside the sum of single upstreams, which get the
// same calls at the same times.
func (r report) sums() {
	const nodes, upstreams, shards = 50, 24, 4
	d := demands[1] // 0.9 of the limit
	s := d.scene(nodes)
	s.Shards, s.Length = shards, 15*time.Second

	// Each upstream alone.
	var single redissim.Load
	for i := range upstreams {
		s.First, s.Upstreams = i, 1
		single = single.Plus(played(r.t, r.b, s).figures().load)
	}

	s.First, s.Upstreams = 0, upstreams
	all := played(r.t, r.b, s)
	together := all.figures().load
	per := func(n int) float64 { return float64(n) / s.Length.Seconds() }
	r.say("\n## Do loads add up? %d nodes, %d upstreams, %d shards, 0.9 of each limit\n", nodes, upstreams, shards)
	r.say("| | calls/s | messages/s | bytes/s |")
	r.say("|---|---:|---:|---:|")
	r.say("| each upstream simulated alone, the sum | %.0f | %.0f | %.0f |", per(single.Calls), per(single.Published()), per(single.BytesIn+single.BytesOut))
	r.say("| all simulated together | %.0f | %.0f | %.0f |", per(together.Calls), per(together.Published()), per(together.BytesIn+together.BytesOut))
	r.say("\n| shard | upstreams | calls/s |")
	r.say("|---:|---:|---:|")

	for i, n := range spread(upstreams, shards) {
		r.say("| %d | %d | %.0f |", i, n, per(all.Loads[i].Calls))
	}
}

// plain prints many upstreams on a master of a cluster, and on a server that belongs to none.
func (r report) plain() {
	const nodes, upstreams = 100, 10
	r.say("\n## Every one of %d nodes always waits for %d upstreams of 40/s\n", nodes, upstreams)
	r.say("| on | starts/s, each | calls/s | messages/s | delivered/s | connections |")
	r.say("|---|---:|---:|---:|---:|---:|")
	s := demands[2].scene(nodes) // every node always waits
	s.Upstreams, s.Length = upstreams, 20*time.Second
	for shards, on := range []string{"a server without a cluster", "the only master of a cluster"} {
		s.Shards = shards
		rec := played(r.t, r.b, s)
		f, o := rec.figures(), rec.outlook(demands[2])
		r.say("| %s | %.1f | %.0f | %.0f | %.0f | %d |", on, f.Starts, o.calls, o.published, o.delivered, rec.Links)
	}
}

// fleet prints a large fleet on clusters of several sizes, and then how many upstreams it can have. all has an outlook for
// each demand, and shards the numbers of masters.
func (r report) fleet(all []outlook, upstreams int, shards []int) {
	r.say("\n## %d nodes × %d upstreams: the hottest shard, each master with a replica\n", all[0].nodes, upstreams)
	r.say("| demand | masters | upstreams | calls/s | messages/s, its own | from others | connections | memory | of a core |")
	r.say("|---|---:|---:|---:|---:|---:|---:|---:|---:|")

	for _, o := range all {
		for _, n := range shards {
			h := o.hottest(upstreams, n, r.cost)
			r.say("| %s | %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f MB | %.0f %% |", o.name, n, h.upstreams, h.calls, h.published, h.taken, h.conns, h.bytes/1e6, 100*h.busy)
		}
	}

	r.say("\n## The ceiling: upstreams that %d nodes can have, with 0.7 of a core for each master\n", all[0].nodes)
	r.say("| demand | one server | 16 masters | 64 masters | 64 servers without a bus |")
	r.say("|---|---:|---:|---:|---:|")

	for _, o := range all {
		most := func(shards int, bus bool) int {
			c := r.cost
			if !bus {
				c.BusSend, c.BusTake = 0, 0
			}

			// The largest number of upstreams below 0.7, by bisection.
			n := 0
			for step := 1 << 20; step > 0; step /= 2 {
				if o.even(n+step, shards, c) < 0.7 {
					n += step
				}
			}

			return n
		}

		r.say("| %s | %d | %d | %d | %d |", o.name, most(1, false), most(16, true), most(64, true), most(64, false))
	}
}

// failovers prints what failovers cost.
func (r report) failovers() {
	const nodes, upstreams, shards = 50, 8, 4
	r.say("\n## A failover of one shard of %d: %d nodes, %d upstreams of 40/s\n", shards, nodes, upstreams)
	r.say("| demand | master away | the replica has | starts lost, as seconds of the rate | first start after | longest wait | most in 1 s | slots asked, a node and second | calls in the first second, for one before |")
	r.say("|---|---:|---|---:|---:|---:|---:|---:|---:|")

	cases := []struct {
		away time.Duration
		lost bool // the replica has nothing
	}{
		{300 * time.Millisecond, false},
		{300 * time.Millisecond, true},
		{6 * time.Second, false},
		{6 * time.Second, true},
		{16 * time.Second, false}, // a Redis Cluster waits 15 s by default before it begins to elect a master
	}

	// Leave out the demand of half of the limit.
	for _, d := range demands[1:] {
		for _, c := range cases {
			// One failover, in a bubble of its own.
			s := d.scene(nodes)
			s.Upstreams, s.Shards = upstreams, shards
			var f failover
			inBubble(r.t, "failover", func() (err error) {
				f, err = s.failover(r.b, c.away, c.lost)
				return err
			})

			has := "all"
			if c.lost {
				has = "nothing"
			}

			r.say("| %s | %v | %s | %.1f | %v | %v | %d | %.1f | %.1f |", d.name, c.away, has, f.Missed, short(f.First), short(f.Longest), f.Worst, f.Slots, f.Rush)
		}
	}
}

// even is the share of a core that each master needs if upstreams are spread evenly: for its own upstreams, for sending
// their messages to other servers, and for taking the messages of other upstreams. Each master has a replica.
func (o outlook) even(upstreams, shards int, c costs) float64 {
	n := float64(upstreams) / float64(shards)
	return (n*o.cost(c) + n*o.published*float64(2*shards-1)*c.BusSend + (float64(upstreams)-n)*o.published*c.BusTake) / 1e6
}

// bytes returns how many bytes went to Redis and back for a start.
func (f figures) bytes() float64 {
	starts := float64(f.load.Calls) / f.Calls // Calls is the load's calls for a start
	return math.Round(float64(f.load.BytesIn+f.load.BytesOut) / starts)
}

// jain writes the index, and nothing for callers that were not in a closed loop.
func (f figures) jain() string {
	if f.Jain == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", f.Jain)
}

// short rounds a time to three digits or so.
func short(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Microsecond; unit /= 10 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d.Round(time.Microsecond)
}
