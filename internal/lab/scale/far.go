package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// seedsFar is how often a fleet is simulated at each distance: the use of a limit by
// those who are far away depends on chance.
const seedsFar = 3

// far prints what four nodes use of a limit at several distances from Redis, and how long callers
// that find room wait.
func (r report) far() {
	r.say("\n## Redis far away: four nodes, simulated, %d runs of each, by seeds 1 to %d\n", seedsFar, seedsFar)
	r.say("Each way takes a quarter to three quarters of the distance, at random. Room: half of the limit, at random times.")
	r.say("Full: more callers than the limit, each of which comes again at once; used is of what the limit and its jitter allow.\n")
	r.say("| limit | distance | room: wait p50 | p99 | full: callers | starts/s | used | wait p50 | p99 | most in 1 s |")
	r.say("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")

	for _, rate := range []int{20, 40, 1000} {
		for _, distance := range []time.Duration{0, 10, 40, 100, 150, 200, 300} {
			s := scene{
				Nodes: 4, Upstreams: 1, PerSecond: rate, Trip: distance * time.Millisecond,
				Settle: 10 * time.Second, Length: time.Minute, Share: 0.5,
			}

			if rate == 1000 {
				s.Length = 10 * time.Second // enough starts at that rate
			}

			// First callers that find room, and then callers in a closed loop, who want more than the limit.
			room := r.runs(s)
			s.Share, s.Callers = 0, max(8, rate*3/10)
			full := r.runs(s)
			starts := func(f figures) float64 { return f.Starts }
			used := func(f figures) float64 { return 100 * f.Used }
			p50 := func(f figures) time.Duration { return f.P50 }
			p99 := func(f figures) time.Duration { return f.P99 }
			r.say("| %d | %v | %v | %v | %d | %s | %s %% | %v | %v | %d |", rate, s.Trip,
				short(middle(room, p50)), short(middle(room, p99)), s.Nodes*s.Callers, reach(full, starts), reach(full, used),
				short(middle(full, p50)), short(middle(full, p99)),
				slices.Max(each(slices.Concat(room, full), func(f figures) int { return f.Worst })))
		}
	}
}

// runs simulates a scene several times.
func (r report) runs(s scene) (all []figures) {
	for s.Seed = 1; s.Seed <= seedsFar; s.Seed++ {
		all = append(all, played(r.t, r.b, s).figures())
	}
	return all
}

// middle returns the median of a figure over all runs.
func middle(all []figures, of func(figures) time.Duration) time.Duration {
	return stat.Quantile(each(all, of), 0.5)
}

// reach returns the range of a figure as a text: the least and the most.
func reach(all []figures, of func(figures) float64) string {
	values := each(all, of)
	return fmt.Sprintf("%.1f to %.1f", slices.Min(values), slices.Max(values))
}

// each returns one figure of all runs.
func each[T any](all []figures, of func(figures) T) (values []T) {
	for _, f := range all {
		values = append(values, of(f))
	}
	return values
}

// A bustle is programs that call one upstream at a joint rate.
type bustle struct{ Nodes, PerSecond int }

// bustles are the loads whose calls have room.
var bustles = []bustle{{4, 40}, {60, 40}, {4, 1000}, {60, 1000}}

// roomier is the factor between the limit and the calls, so that no start waits
// for a second one: all of a wait is the store's.
const roomier = 25

// scene is these programs at some distance from Redis. Calls come at random times.
func (b bustle) scene(trip time.Duration) scene {
	return scene{
		Nodes: b.Nodes, Upstreams: 1, PerSecond: b.PerSecond * roomier, Share: 1.0 / roomier, Trip: trip,
		Settle: 5 * time.Second, Length: 20 * time.Second, Seed: 1,
	}
}

// room prints how long starts that have room wait: simulated at several distances from Redis, and measured with a real
// server.
func (r report) room() {
	r.say("\n## What a start that has room waits for: one upstream, which allows %d times what is asked for\n", roomier)
	r.say("Calls come at random times to random programs. Simulated: each way takes a quarter to three quarters of the distance, at random,")
	r.say("and neither Redis nor a program takes any time. Medians of %d runs, by seeds 1 to %d; the longest of all of them.", seedsFar, seedsFar)
	r.say("Measured: real processes and a real server, which share the cores; one run.\n")
	r.say("| there and back | programs | calls/s of all | p50 | p99 | longest | calls of scripts a start |")
	r.say("|---:|---:|---:|---:|---:|---:|---:|")
	row := func(distance string, b bustle, all []figures) {
		calls := each(all, func(f figures) float64 { return f.Calls })
		longest := each(all, func(f figures) time.Duration { return f.Longest })
		r.say("| %s | %d | %d | %v | %v | %v | %.2f |", distance, b.Nodes, b.PerSecond,
			short(middle(all, func(f figures) time.Duration { return f.P50 })),
			short(middle(all, func(f figures) time.Duration { return f.P99 })), short(slices.Max(longest)), slices.Max(calls))
	}

	for _, trip := range []time.Duration{500, 1000, 2000, 5000, 10_000, 40_000, 100_000} {
		for _, b := range bustles {
			row((trip * time.Microsecond).String(), b, r.runs(b.scene(trip*time.Microsecond)))
		}
	}

	for _, b := range bustles {
		measured, err := b.scene(0).measure(redistest.Single(r.t).Addr)
		if err != nil {
			r.t.Fatal(err)
		}
		row("loopback, measured", b, []figures{measured.figures()})
	}
}

// A crowd is callers that wait for a limit, in a closed loop: each comes again at once.
type crowd struct {
	Nodes, Callers int // of each node
	PerSecond      int // of each key
	Keys           int
	Shares         int // callers belong to this number of shares, by turns
}

// crowds are the fleets whose waiting is measured.
var crowds = []crowd{
	{60, 4, 40, 1, 0}, {4, 16, 40, 1, 0}, {60, 4, 100, 1, 0}, {4, 16, 1000, 1, 0}, {4, 64, 5000, 1, 0}, {4, 256, 20000, 1, 0},
	{4, 100, 20, 100, 0}, {4, 1000, 4, 1000, 0},
	{4, 100, 100, 1, 0}, {4, 100, 100, 1, 2}, {4, 100, 100, 1, 10}, {4, 100, 100, 1, 100},
	{4, 200, 1000, 1, 0}, {4, 200, 1000, 1, 2}, {4, 200, 1000, 1, 10}, {4, 200, 1000, 1, 100},
}

const (
	settleTime = 3 * time.Second // until a crowd is in step
	watchTime  = 8 * time.Second // the time of the measurement
)

// waiting prints the cost for Redis of a start for which a caller waits, in real time.
func (r report) waiting() {
	r.say("\n## What waiting costs: nodes are stores of one program, with clients of their own; real time, %v of each\n", watchTime)
	r.say("Redis' processor time of all that it does, and calls of scripts, for each start. Used is of what the limit and its jitter allow.\n")
	r.say("| nodes × callers | keys | shares | limit of each | µs a start | calls a start | of a core | used | wait p50 | p99 | longest | Jain |")
	r.say("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")

	for _, c := range crowds {
		w := c.watch(r.t)
		w.sort()
		starts := float64(len(w.waits))
		r.say("| %d × %d | %d | %d | %d/s | %.0f | %.2f | %.1f %% | %.1f %% | %v | %v | %v | %.2f |",
			c.Nodes, c.Callers, c.Keys, c.Shares, c.PerSecond, w.cpu*1e6/starts, w.calls/starts, 100*w.cpu/w.took.Seconds(),
			100*starts/w.took.Seconds()/float64(c.PerSecond*c.Keys)*(time.Second+jitter).Seconds(),
			short(stat.Quantile(w.waits, 0.5)), short(stat.Quantile(w.waits, 0.99)), short(stat.Quantile(w.waits, 1)), stat.Jain(slices.Collect(maps.Values(w.starts))))
	}
}

// A watched has what was observed of a crowd.
type watched struct {
	waits      []time.Duration
	starts     map[string]int // of each caller
	cpu, calls float64        // seconds of the server's processor, and scripts
	took       time.Duration
}

func (w *watched) sort() { slices.Sort(w.waits) }

// watch has a crowd wait at a server of its own, in real time, and returns what was observed in watchTime.
func (c crowd) watch(t redistest.TB) *watched {
	server := redistest.Single(t)
	admin := server.Client(t)
	ctx, stop := context.WithCancel(context.Background())
	w := &watched{starts: make(map[string]int)}
	var mu sync.Mutex
	var all sync.WaitGroup

	begun := time.Now()
	for node := range c.Nodes {
		limiters := c.limiters(t, redisstore.New(server.Client(t), redisstore.Options{}))
		for caller := range c.Callers {
			l := limiters[caller%len(limiters)]
			who, key := fmt.Sprint(node, "/", caller), strconv.Itoa(caller%c.Keys)
			all.Go(func() {
				for {
					asked := time.Now()
					p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), key, 1)
					if err != nil {
						return
					}

					// Count the waits that end in the time of the measurement.
					served := time.Now()
					p.Release()

					if since := served.Sub(begun); since > settleTime && since < settleTime+watchTime {
						mu.Lock()
						w.waits = append(w.waits, served.Sub(asked))
						w.starts[who]++
						mu.Unlock()
					}
				}
			})
		}
	}

	// The server's work is measured in the same time, as the difference of two readings.
	time.Sleep(time.Until(begun.Add(settleTime)))
	cpu, calls := spent(admin)
	from := time.Now()
	time.Sleep(time.Until(begun.Add(settleTime + watchTime)))
	w.cpu, w.calls = spent(admin)
	w.cpu, w.calls, w.took = w.cpu-cpu, w.calls-calls, time.Since(from)
	stop()
	all.Wait()

	return w
}

// limiters returns the limiters of a node: one for each share, or a single one if the crowd has no shares.
func (c crowd) limiters(t redistest.TB, s *redisstore.Store) (all []*throttle.Limiter) {
	for i := range max(1, c.Shares) {
		own := shareOf{Store: s}
		if c.Shares > 0 {
			own.share = store.Share{ID: uint64(1000 + i), Weight: 1}
		}
		l, err := throttle.NewLimiter(own, throttle.Policy{Name: "waiting", Limit: throttle.PerSecond(c.PerSecond)})
		if err != nil {
			t.Fatalf("scale: %v", err)
		}
		all = append(all, l)
	}
	return all
}

// A shareOf is a store all of whose callers belong to one share.
type shareOf struct {
	*redisstore.Store
	share store.Share
}

// Book implements [throttle.Store].
func (s shareOf) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	for i := range b.Charges {
		b.Charges[i].Share = s.share
	}
	return s.Store.Book(ctx, b)
}

// spent returns how much processor time a server has used, in seconds, and how many scripts ran.
func spent(c *redis.Client) (cpu, scripts float64) {
	for line := range strings.Lines(c.Info(context.Background(), "cpu", "commandstats").Val()) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case field == "used_cpu_user" || field == "used_cpu_sys":
			n, _ := strconv.ParseFloat(value, 64)
			cpu += n
		case strings.HasPrefix(field, "cmdstat_eval"):
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseFloat(value, 64)
			scripts += n
		}
	}

	return cpu, scripts
}
