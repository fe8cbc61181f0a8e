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

// A watched crowd has the observations of it.
type watched struct {
	waits      []time.Duration
	starts     map[string]int // of each caller
	cpu, calls float64        // seconds of the server's processor, and scripts
	took       time.Duration
}

func (w *watched) sort() { slices.Sort(w.waits) }

// watch lets a crowd wait at a server of its own.
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
			name, key := fmt.Sprint(node, "/", caller), strconv.Itoa(caller%c.Keys)
			all.Go(func() {
				for {
					asked := time.Now()
					p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), key, 1)
					if err != nil {
						return
					}

					served := time.Now()
					p.Release()

					if since := served.Sub(begun); since > settleTime && since < settleTime+watchTime {
						mu.Lock()
						w.waits = append(w.waits, served.Sub(asked))
						w.starts[name]++
						mu.Unlock()
					}
				}
			})
		}
	}

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

// limiters returns the limiters of a node: one for each share.
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
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "used_cpu_user" || name == "used_cpu_sys":
			n, _ := strconv.ParseFloat(value, 64)
			cpu += n
		case strings.HasPrefix(name, "cmdstat_eval"):
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseFloat(value, 64)
			scripts += n
		}
	}

	return cpu, scripts
}
