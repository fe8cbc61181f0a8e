package main

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A bustle is programs that call one upstream at a joint rate.
type bustle struct{ Nodes, PerSecond int }

// bustles are the loads whose calls have room.
var bustles = []bustle{{4, 40}, {60, 40}, {4, 1000}, {60, 1000}}

// roomier is how many times as much the limit allows as is asked for, so that no start waits
// for a second one: the rest of a wait is the store's.
const roomier = 25

// scene is these programs at some distance from Redis. Calls come at random times.
func (b bustle) scene(trip time.Duration) scene {
	return scene{
		Nodes: b.Nodes, Upstreams: 1, PerSecond: b.PerSecond * roomier, Share: 1.0 / roomier, Trip: trip,
		Settle: 5 * time.Second, Length: 20 * time.Second, Seed: 1,
	}
}

// room prints by how much a start that has room is later than its request, at several distances
// from Redis.
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
