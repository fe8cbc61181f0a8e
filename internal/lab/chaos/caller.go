package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A callerKind says how long a caller waits.
type callerKind int

const (
	patient callerKind = iota // without a deadline
	dated                     // until the deadline of its context
	bounded                   // for a MaxWait
)

// A role is the work that a caller repeats.
type role struct {
	path    string
	kind    callerKind
	callers int // in each member
}

// The paths say which limits a request obeys.
const (
	quick     = "/pull/quick" // the sliding window
	slow      = "/free/slow"  // the limit of requests in flight
	quickSlow = "/pull/slow"  // both
)

// cast is more than the upstream allows, so that callers always wait.
var cast = []role{
	{quick, patient, 9},
	{quick, dated, 3},
	{quick, bounded, 2},
	{slow, patient, 2},
	{slow, dated, 1},
	{quickSlow, patient, 1},
	{quickSlow, dated, 1},
}

// A caller calls until its member rests.
type caller struct {
	role
	name   string
	url    string
	client *http.Client
	tell   func(word)
}

// callHeader names a call.
const callHeader = "X-Chaos-Call"

// work makes one call after the other until ctx ends, and tells of each. It does not tell of the call that ctx cut off.
func (c *caller) work(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		done := c.call(ctx, fmt.Sprintf("%s/%d", c.name, n))
		if ctx.Err() != nil {
			return
		}
		c.tell(word{Call: &done})
		sleep(ctx, rand.N(100*time.Millisecond))
		if done.Err != "" {
			// A caller that is refused at once would ask again at once.
			sleep(ctx, 200*time.Millisecond)
		}
	}
}

// call makes one call, with a bound of 0.3 to 3 s unless the caller is patient, and returns what became of it.
func (c *caller) call(ctx context.Context, id string) call {
	done := call{ID: id, Kind: c.kind, Asked: fleet.Now()}
	bound := 300*time.Millisecond + rand.N(2700*time.Millisecond)
	switch c.kind {
	case dated:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	case bounded:
		ctx = throttle.WithMaxWait(ctx, bound)
	}

	// A caller that is late notes where it stands at that time.
	var where atomic.Pointer[string]
	if c.kind != patient {
		done.By = done.Asked + bound
		defer time.AfterFunc(bound+mostLate, tracer(&where)).Stop()
	}

	err := c.send(ctx, id)
	done.Returned = fleet.Now()
	done.Err, done.Text = kind(err)
	if at := where.Load(); at != nil {
		done.Where = *at
	}

	return done
}

// send sends the request and reads the answer. An answer other than 200 is an errStatus.
func (c *caller) send(ctx context.Context, id string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+c.path, nil)
	if err != nil {
		return err
	}

	r.Header.Set(fleet.WorkerHeader, c.name)
	r.Header.Set(callHeader, id)

	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errStatus(resp.StatusCode)
	}

	return nil
}

// An errStatus is an answer that is not 200.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprint("status ", int(e)) }

// kind returns the name of the kind of error that a call ended with, and the text of errors of the store and of no known
// kind, or "". Both are "" for a call without an error.
func kind(err error) (name, text string) {
	var store *throttle.StoreError
	var status errStatus
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, throttle.ErrLimited):
		return "limited", ""

	// An error of a caller whose deadline came while the store was away matches StoreError, too, and counts as a deadline.
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline", ""
	case errors.As(err, &store):
		return "store", store.Error()
	case errors.As(err, &status):
		return status.Error(), ""
	}

	return "other", err.Error()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// A crowd is a closed window of a second: how many requests arrived in it, and how many were allowed to.
type crowd struct {
	count  int
	limit  int // the highest that was in force in the window
	extra  int // starts that the store forgot
	excuse int // arrivals that a stall of the machine may have moved into the window
}

// excess is how many arrivals are too many; a negative excess is room.
func (c crowd) excess() int { return c.count - c.limit - c.extra - c.excuse }

// worst returns the window with the highest excess among those that end in the scene, and of several the fullest.
func (r *record) worst(s *scene) crowd {
	seen := r.between(s.from-time.Second, s.end)
	extra := len(r.between(s.lost.from, s.lost.to))
	var worst crowd

	// Go along the arrivals with a window that ends at each of them.
	first := 0
	for last := range seen {
		to := seen[last].at
		for to-seen[first].at > time.Second {
			first++
		}

		if to < s.from {
			continue
		}

		// A stall in the window, or shortly before, may have delayed arrivals into it.
		from := seen[first].at
		c := crowd{count: last - first + 1, limit: r.limit(from, to), extra: extra}
		if c.count > c.limit+c.extra {
			c.excuse = excuse(longest(r.stalls, from-100*time.Millisecond, to), window)
		}
		isWorse := cmp.Or(cmp.Compare(c.excess(), worst.excess()), cmp.Compare(c.count, worst.count)) > 0
		if worst.count == 0 || isWorse { // the first counts in any case
			worst = c
		}
	}

	return worst
}

// onTheWay is the longest stall that is no excuse. A grant leaves 25 ms of its jitter for the way to
// the upstream, and a part of that is needed without any stall.
const onTheWay = 10 * time.Millisecond

// excuse returns how many arrivals a stall may have moved into a wrong window, under a limit of n in a second: requests
// that come while the machine stands still are counted when it goes on.
func excuse(stall time.Duration, n int) int {
	if stall <= onTheWay {
		return 0
	}
	return 1 + int(time.Duration(n)*stall/time.Second)
}

// longest returns the length of the longest stall that touches the time between from and to, or 0.
func longest(stalls []fleet.Stall, from, to time.Duration) time.Duration {
	var most time.Duration
	for _, st := range stalls {
		if st.From <= to && st.To >= from {
			most = max(most, st.Length())
		}
	}
	return most
}

// memberRole is the role of a member of the fleet.
const memberRole = "chaos"

// leastStall is the shortest stall that a member tells of: shorter stalls are usual on a busy machine.
const leastStall = 2 * time.Millisecond

// A member is one process of the fleet.
type member struct {
	orders
	transport *throttle.Transport
	base      *http.Transport
	redis     redis.UniversalClient

	program *crew.Link

	mu     sync.Mutex
	events map[string]int
}

// memberMain is a member's main function: it starts the callers, and obeys orders. It returns nil when the program that
// started it is gone.
func memberMain(program *crew.Link) error {
	m := &member{program: program, events: map[string]int{}}
	if err := program.Hear(&m.orders); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}

	defer m.redis.Close()
	ctx, over := context.WithCancel(context.Background())
	defer over()
	endWatch := fleet.WatchStalls(leastStall, func(s fleet.Stall) { m.tell(word{Stall: &s}) })
	callers := m.engage(ctx)
	m.tell(word{Ready: true})

	for {
		var o order
		if err := program.Hear(&o); err != nil {
			return nil // the program is gone, or no longer needs this member
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
			endWatch()
			left := m.remains()
			m.tell(word{Left: &left})
		}

		m.tell(word{Changed: true})
	}
}

// tell tells the program a word. An error says that the program is gone, and memberMain is about to notice that.
func (m *member) tell(w word) { _ = m.program.Tell(w) }

// prepare makes the member's client of Redis and its transport.
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

// policies are the two limits of the upstream, as the member knows them now.
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

// engage starts all callers, and returns the group to wait for after ctx has ended.
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

// outageOf returns the mode of that name, or an error if there is none.
func outageOf(name string) (redisstore.Outage, error) {
	for _, o := range []redisstore.Outage{redisstore.OutageWait, redisstore.OutageSplit, redisstore.OutageFailOpen} {
		if o.String() == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("chaos: no outage mode %q", name)
}
