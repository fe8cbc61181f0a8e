package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// What the upstream allows, and how large the fleet is.
const (
	window   = 40 // starts in a second
	inFlight = 4
	members  = 4
)

const (
	warmUp = 2 * time.Second  // until a new fleet has its connections
	calm   = 2 * time.Second  // before each fault, to compare with
	after  = 4 * time.Second  // after each fault
	longer = 11 * time.Second // after a store forgot, until the requests in flight must be known again
)

// A script says how faults are played.
type script struct {
	say    io.Writer // progress
	mode   string    // the fleet's behaviour in an outage
	short  bool      // times are short
	random *rand.Rand
}

// A stage is a fleet at work with its store and its upstream.
type stage struct {
	redistest.TB
	theatre
	script
	admin  *redis.Client // of the single server
	up     *upstream
	crew   []*hand
	orders orders
	limits []limit
	scene  *scene
	scenes []*scene
	kills  []time.Duration // when members were killed

	mu       sync.Mutex
	stalls   []fleet.Stall // of this program
	endWatch func()        // of stalls
}

// A limit bounds the sliding window from a time on.
type limit struct {
	from time.Duration
	n    int
}

// A scene is one fault: a calm time, the harm, and the time after it. It lasts from
// from to end. harm is when the fault begins, and back is when the store, or the
// part with the fault, is in order again.
type scene struct {
	*fault
	from, harm, back, end time.Duration

	hit    string        // the member that is hit; "": the fleet
	lost   span          // when the starts were booked that the store forgot. Members may have forgotten them, too
	opens  time.Duration // when a penalty ended, or 0
	closed time.Duration // from when on it must have kept everybody away
	lookOn time.Duration // how long to look on after the fault, if longer than usual
	forgot bool          // the store lost its state
}

// A theatre is where members find their store.
type theatre struct {
	single   *redistest.Server
	sentinel *redistest.SentinelServers
	cluster  *redistest.ClusterServers
	wires    map[int]*redistest.Wire // by member; only before a single server
}

// open starts the servers of a place, an upstream and a fleet, and lets the fleet warm up.
func open(t redistest.TB, play script, where place) *stage {
	s := &stage{TB: t, script: play, up: newUpstream()}
	t.Cleanup(s.up.server.Close)
	s.limits = []limit{{0, window}}
	s.orders = orders{Upstream: s.up.server.URL, Outage: play.mode, Window: window, InFlight: inFlight, Namespace: "chaos"}
	s.tellf("starting %s and %d members", where, members)

	// Members of a single server reach it through a wire of their own, which a fault can cut.
	switch where {
	case onSentinel:
		s.sentinel = redistest.Sentinel(t)
		s.orders.Redis, s.orders.Master = []string{s.sentinel.Sentinel.Addr}, redistest.MasterName
	case onCluster:
		s.cluster = redistest.Cluster(t)
		s.orders.Redis, s.orders.Cluster = s.cluster.Addrs, true
	default:
		s.single = redistest.Single(t)
		s.admin = s.single.Client(t)
		s.wires = map[int]*redistest.Wire{}
	}

	// A machine that stands still delays members and Redis alike, and is no fault of the fleet.
	endWatch := fleet.WatchStalls(leastStall, func(st fleet.Stall) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stalls = append(s.stalls, st)
	})

	s.endWatch = sync.OnceFunc(endWatch) // close calls it, and the cleanup if the play fails before
	t.Cleanup(s.endWatch)

	for range members {
		s.join()
	}

	time.Sleep(warmUp)
	return s
}

// join starts one more member, and waits until its callers call. A member of a single server gets a wire of its own.
func (s *stage) join() *hand {
	o := s.orders
	o.Member = len(s.crew)
	if s.single != nil {
		w := redistest.NewWire(s, s.single.Addr)
		s.wires[o.Member] = w
		o.Redis = []string{w.Addr}
	}
	h := hire(s, o)
	s.crew = append(s.crew, h)
	return h
}

// play lets one fault happen between two calm times, and adds its scene to the stage's scenes. The fault itself notes
// when it begins and when it is over.
func (s *stage) play(f *fault) {
	s.tellf("%s: %s", f.name, f.what)
	s.scene = &scene{fault: f, from: fleet.Now()}
	time.Sleep(calm + s.randomTime(0, 500*time.Millisecond))
	f.play(s)

	// Look on until the consequences of the fault are over. A penalty must have ended. A store that forgot must know the
	// requests in flight again, but a short run does not wait for that.
	lookOn := max(after, s.scene.lookOn)
	if s.scene.forgot && !s.short {
		lookOn = longer
	}
	time.Sleep(lookOn + max(0, s.scene.opens-fleet.Now()))
	s.scene.end = fleet.Now()
	s.scenes = append(s.scenes, s.scene)
}

// harm and back note when a fault begins and when it is over.
func (s *stage) harm() { s.scene.harm = fleet.Now() }
func (s *stage) back() { s.scene.back = fleet.Now() }

// hit says that a fault is a member's alone.
func (s *stage) hit(h *hand) { s.scene.hit = strconv.Itoa(h.Member) }

// alive are the members that were not killed.
func (s *stage) alive() []*hand {
	var all []*hand
	for _, h := range s.crew {
		if !h.dead {
			all = append(all, h)
		}
	}
	return all
}

// any returns a random member that was not killed.
func (s *stage) any() *hand {
	all := s.alive()
	return all[s.random.IntN(len(all))]
}

// randomTime returns a random time between the two, both included.
func (s *stage) randomTime(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}

// tellf prints a line about the progress.
func (s *stage) tellf(format string, args ...any) {
	fmt.Fprintf(s.say, format+"\n", args...)
}
