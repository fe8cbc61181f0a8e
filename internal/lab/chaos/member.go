package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/redisstore"
)

// memberRole is the role of a member of the fleet.
const memberRole = "chaos"

// leastStall is the shortest stall that a member tells of: shorter stalls are usual on a busy machine
// does all the time.
const leastStall = 2 * time.Millisecond

// A member is one process of the fleet.
type member struct {
	orders
	transport *throttle.Transport
	base      *http.Transport
	redis     redis.UniversalClient
	before    int // goroutines that were there first

	program *crew.Link

	mu     sync.Mutex
	events map[string]int
}

// memberMain is the program as a member. It returns when the program that started it is gone.
func memberMain(program *crew.Link) error {
	m := &member{program: program, events: map[string]int{}, before: runtime.NumGoroutine()}
	if err := program.Hear(&m.orders); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}

	defer m.redis.Close()
	ctx, over := context.WithCancel(context.Background())
	defer over()
	still := fleet.WatchStalls(leastStall, func(s fleet.Stall) { m.tell(word{Stall: &s}) })
	callers := m.engage(ctx)
	m.tell(word{Ready: true})

	for {
		var o order
		if err := program.Hear(&o); err != nil {
			return nil // the end of the fleet
		}

		if o.Window > 0 {
			m.Window = o.Window
			if err := m.transport.SetPolicies(m.policies()); err != nil {
				return err
			}
		}

		if o.Rest {
			over()
			callers.Wait()
			still()
			left := m.remains()
			m.tell(word{Left: &left})
		}

		m.tell(word{Changed: true})
	}
}

// tell tells a word. If nobody hears any more, nothing matters any more.
func (m *member) tell(w word) { _ = m.program.Tell(w) }

// prepare makes the member's transport.
func (m *member) prepare() error {
	outage, err := outageOf(m.Outage)
	if err != nil {
		return err
	}

	m.redis = m.dial()
	m.base = &http.Transport{MaxIdleConnsPerHost: 64}
	m.transport, err = throttle.New(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    redisstore.New(m.redis, redisstore.Options{Namespace: m.Namespace, Outage: outage}),
		Policies: m.policies(),
		Base:     m.base,
		Observe:  m.observe,
	})

	return err
}

// dial returns a client with the defaults that most programs have.
func (m *member) dial() redis.UniversalClient {
	switch {
	case m.Cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: m.Redis})
	case m.Master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: m.Master, SentinelAddrs: m.Redis})
	}
	return redis.NewClient(&redis.Options{Addr: m.Redis[0]})
}

// policies are the two limits of the upstream.
func (m *member) policies() []throttle.Policy {
	return []throttle.Policy{
		{Name: "window", Match: "/pull/", Limit: throttle.PerSecond(m.Window)},
		{Name: "in flight", Match: "/{any}/slow", Limit: throttle.Concurrency(m.InFlight)},
	}
}

func (m *member) observe(_ context.Context, e throttle.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events[e.Kind.String()]++
}

// engage lets all callers begin.
func (m *member) engage(ctx context.Context) *sync.WaitGroup {
	var all sync.WaitGroup
	client := &http.Client{Transport: m.transport}
	n := 0
	for _, r := range cast {
		for range r.callers {
			c := &caller{role: r, name: fmt.Sprintf("%d/%d", m.Member, n), url: m.Upstream, client: client, tell: m.tell}
			n++
			all.Go(func() { c.work(ctx) })
		}
	}
	return &all
}

// outageOf reads the name of a mode.
func outageOf(name string) (redisstore.Outage, error) {
	for _, o := range []redisstore.Outage{redisstore.OutageWait, redisstore.OutageSplit, redisstore.OutageFailOpen} {
		if o.String() == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("chaos: no outage mode %q", name)
}
