package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A scene is a fleet in virtual time: its nodes, their upstreams, and for how long.
type scene struct {
	Nodes     int
	First     int // the number of the first upstream
	Upstreams int // how many: each has a limit of its own, and all nodes call all of them
	Shards    int // masters of the cluster, or 0 for a server that belongs to no cluster
	PerSecond int // the limit of each upstream

	// Callers is how many of each node call each upstream in a closed loop. If it is 0,
	// calls come at random times to random nodes, Share of the limit of them in a second.
	Callers int
	Work    time.Duration // how long a caller in a closed loop works after a start, in the mean
	Share   float64       // see Callers

	Trip   time.Duration // to Redis and back
	Settle time.Duration // for how long it is played before it is measured
	Length time.Duration // for how long it is measured
	Seed   uint64

	events []event // what happens on the way
	spare  int     // servers without slots, for events
}

// An event is something that happens to the servers.
type event struct {
	after time.Duration // that measuring has begun
	do    func(*redissim.Network) error
}

// A record is what happened in a scene.
type record struct {
	scene
	Samples  [][]fleet.Sample // by upstream
	Loads    []redissim.Load  // by server, while it was measured
	Before   []redissim.Load  // by server, from the beginning until then
	Links    int              // connections, in the middle of the measurement
	Keys     int              // at the same time
	KeyBytes int
	Script   float64 // microseconds of the server's processor for a call of a script; see [redissim.Backend.Replay]
	Busy     float64 // of a processor that the server used; of real servers only
	from, to time.Duration
}

// name returns the name of an upstream. In a cluster it is also the namespace of the upstream's store.
func name(upstream int) string { return fmt.Sprintf("upstream-%d.example", upstream) }

// play plays a scene, in a bubble of testing/synctest, and returns what happened. It forgets the backend's data before. It
// returns an error if anything happened that must not happen.
func (s scene) play(b *redissim.Backend) (*record, error) {
	if err := b.Reset(); err != nil {
		return nil, err
	}

	n := redissim.New(b, s.Shards, s.spare, s.Trip, s.Seed)
	var clients []redis.UniversalClient
	for range s.Nodes {
		c := n.Client()
		clients = append(clients, c)
		if err := c.Publish(context.Background(), "hello", "").Err(); err != nil { // before its first call a client asks for slots and commands
			return nil, err
		}
	}

	p, err := s.start(now(), clients)
	if err != nil {
		return nil, err
	}

	// Events and measuring begin when the fleet is at its steady load.
	for _, e := range s.events {
		time.AfterFunc(s.Settle+e.after, func() { n.Fail(e.do(n)) })
	}

	time.Sleep(s.Settle)
	r := p.record
	r.Before = n.Loads()
	time.Sleep(s.Length / 2)
	r.Links = n.Links()
	r.Keys, r.KeyBytes, err = b.Rows()
	n.Fail(err)
	time.Sleep(s.Length / 2)

	// The loads of the servers grow from the beginning on, so subtract the part before measuring.
	for i, l := range n.Loads() {
		r.Loads = append(r.Loads, l.Minus(r.Before[i]))
	}

	p.end()
	time.Sleep(time.Minute) // until the nodes have told Redis that their callers left

	for _, c := range clients {
		n.Fail(c.Close())
	}

	time.Sleep(time.Minute) // until the closed clients are at rest
	r.Script, err = b.Replay()
	n.Fail(err)

	return r, n.Err()
}

// start lets the callers of all nodes begin, each node with a client of its own. Nodes whose client is nil are in other
// processes. begin is when the scene begins in all processes, since the Unix epoch: the present time.
func (s scene) start(begin time.Duration, clients []redis.UniversalClient) (*playing, error) {
	r := &record{scene: s, Samples: make([][]fleet.Sample, s.Upstreams), from: begin + s.Settle}
	r.to = r.from + s.Length

	p := &playing{record: r}
	for _, client := range clients {
		if client == nil {
			p.limiters = append(p.limiters, nil)
			continue
		}

		// All budgets of a namespace lie on one master, so a cluster has a namespace for each upstream.
		store := redisstore.New(client, redisstore.Options{})
		var mine []*throttle.Limiter
		for i := range s.Upstreams {
			domain := name(s.First + i)
			if s.Shards > 0 {
				store = redisstore.New(client, redisstore.Options{Namespace: domain})
			}

			l, err := throttle.NewLimiter(store, throttle.Policy{Name: domain, Limit: throttle.PerSecond(s.PerSecond)})
			if err != nil {
				return nil, err
			}

			mine = append(mine, l)
		}

		p.limiters = append(p.limiters, mine)
	}

	p.ctx, p.over = context.WithCancel(context.Background())
	p.begin()
	return p, nil
}

// A playing is a scene while it is played.
type playing struct {
	*record
	limiters [][]*throttle.Limiter // by node and upstream, or nil if a different process plays the node
	ctx      context.Context
	over     context.CancelFunc
	all      sync.WaitGroup // the callers
	mu       sync.Mutex     // guards Samples
}

// end has all callers leave, and puts the samples in the order in which they asked.
func (p *playing) end() {
	p.over()
	p.all.Wait()
	for _, samples := range p.Samples {
		slices.SortFunc(samples, func(a, b fleet.Sample) int { return cmp.Compare(a.Asked, b.Asked) })
	}
}

// begin starts the callers of the nodes that are in this process.
func (p *playing) begin() {
	for u := range p.Upstreams {
		if p.Callers == 0 {
			p.all.Go(func() { p.arrivals(u) })
			continue
		}

		for node := range p.limiters {
			for i := range p.Callers {
				if p.limiters[node] != nil {
					p.all.Go(func() { p.loop(u, node, i) })
				}
			}
		}
	}
}

// loop is one caller of upstream u: it takes a start, works for a random time, and takes the next, until the scene is over.
func (p *playing) loop(u, node, caller int) {
	random := rand.New(rand.NewPCG(p.Seed, uint64(p.First+u)<<40|uint64(node)<<20|uint64(caller)))
	for p.ctx.Err() == nil {
		p.acquire(u, node, caller)
		pause(p.ctx, time.Duration(random.Int64N(int64(2*p.Work)+1)))
	}
}

// arrivals sends calls of upstream u to random nodes at random times, until the scene is over. Where nodes are separate
// processes, every process draws the same sequence and makes only the calls of its own nodes.
func (p *playing) arrivals(u int) {
	random := rand.New(rand.NewPCG(p.Seed, uint64(p.First+u)))
	for at := p.from - p.Settle; ; {
		gap := random.ExpFloat64() / (p.Share * float64(p.PerSecond))
		at += time.Duration(gap * float64(time.Second))
		pause(p.ctx, at-now())
		if p.ctx.Err() != nil {
			return
		}

		if node := random.IntN(p.Nodes); p.limiters[node] != nil {
			p.all.Go(func() { p.acquire(u, node, 0) })
		}
	}
}

// acquire takes one start of upstream u, and keeps its sample. A limit per second has nothing to release.
func (p *playing) acquire(u, node, caller int) {
	s := fleet.Sample{Worker: fmt.Sprintf("%d/%d", node, caller), Asked: now()}
	_, err := p.limiters[node][u].Acquire(throttle.WithMaxWait(p.ctx, throttle.Forever), "", 1)
	s.Served, s.OK = now(), err == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Samples[u] = append(p.Samples[u], s)
}

// pause lets d pass, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// now is the time, virtual or not, since the Unix epoch.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
