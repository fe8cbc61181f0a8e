package simulation_test

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/memstore"
)

// A slow base answers after a while.
type slow struct{ latency time.Duration }

func (s slow) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(s.latency)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// perform does what a job says with a real Transport: of one node.
func perform(t *testing.T, j *simulation.Job) (took time.Duration) {
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: j.Policies, Base: slow{j.Latency}})
	require.NoError(t, err)
	begin := time.Now()
	var mu sync.Mutex
	left, debts, total := j.Requests, make([]int, len(j.Mix)), 0
	for _, p := range j.Mix {
		total += p.Weight
	}
	next := func() *http.Request {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 {
			return nil
		}
		left--
		best := 0
		for i, p := range j.Mix {
			debts[i] += p.Weight
			if debts[i] > debts[best] {
				best = i
			}
		}
		debts[best] -= total
		return j.Mix[best].Request
	}
	var all sync.WaitGroup
	for range j.Workers {
		all.Go(func() {
			for req := next(); req != nil; req = next() {
				_, err := transport.RoundTrip(req)
				require.NoError(t, err)
			}
		})
		synctest.Wait()
	}
	all.Wait()
	return time.Since(begin)
}

// get returns a part of a mix.
func get(url string, weight int) simulation.Part {
	req, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	return simulation.Part{Request: req, Weight: weight}
}

// jobs are of all kinds of limits, alone and together.
func jobs() map[string]*simulation.Job {
	one := []simulation.Part{get("https://example.com/a", 1)}
	mix := []simulation.Part{get("https://example.com/a", 3), get("https://example.com/b", 1), get("https://other.example.com/c", 2)}
	policy := func(name, match string, l throttle.Limit) throttle.Policy {
		return throttle.Policy{Name: name, Match: cmp.Or(match, "/"), Limit: l}
	}
	heavy := policy("heavy", "/b", throttle.TokenBucket(5, time.Second, 20))
	heavy.Cost = func(*http.Request) int { return 7 }
	shadow := policy("shadow", "", throttle.PerMinute(10))
	shadow.Shadow = true
	node := policy("node", "", throttle.Concurrency(2))
	node.Scope = throttle.ScopeNode
	job := func(requests, workers int, latency time.Duration, mix []simulation.Part, policies ...throttle.Policy) *simulation.Job {
		return &simulation.Job{Policies: policies, Mix: mix, Requests: requests, Nodes: 1, Workers: workers, Latency: latency}
	}
	return map[string]*simulation.Job{
		"free":           job(100, 8, 100*time.Millisecond, one, policy("elsewhere", "other.example.com/", throttle.PerSecond(1))),
		"workers":        job(100, 3, 100*time.Millisecond, one, policy("p", "", throttle.PerSecond(40))),
		"sliding":        job(500, 8, 100*time.Millisecond, one, policy("p", "", throttle.PerSecond(40))),
		"long window":    job(250, 30, 20*time.Millisecond, one, policy("p", "", throttle.PerMinute(100))),
		"fixed":          job(500, 16, 20*time.Millisecond, one, policy("p", "", throttle.FixedWindow(50, 10*time.Second))),
		"calendar":       job(45, 4, 2*time.Second, one, policy("p", "", throttle.CalendarWindow(20, throttle.Day, nil))),
		"bucket":         job(300, 8, 100*time.Millisecond, one, policy("p", "", throttle.TokenBucket(2, time.Second, 40))),
		"paced":          job(300, 8, 50*time.Millisecond, one, policy("p", "", throttle.LeakyBucket(10, time.Second))),
		"in flight":      job(300, 8, 70*time.Millisecond, one, policy("p", "", throttle.Concurrency(3))),
		"shadow":         job(100, 8, 70*time.Millisecond, one, shadow),
		"two in a row":   job(400, 16, 100*time.Millisecond, one, policy("p", "", throttle.PerSecond(30)), policy("q", "", throttle.PerMinute(200))),
		"slots and rate": job(400, 16, 100*time.Millisecond, one, policy("p", "", throttle.PerSecond(30)), policy("q", "", throttle.Concurrency(4))),
		"node's slots":   job(200, 8, 100*time.Millisecond, one, policy("p", "", throttle.PerSecond(30)), node),
		"mix":            job(600, 12, 50*time.Millisecond, mix, policy("all", "", throttle.PerSecond(50)), heavy, policy("other", "other.example.com/", throttle.Concurrency(2)), shadow),
		"one worker":     job(50, 1, 10*time.Millisecond, one, policy("p", "", throttle.PerSecond(10))),
	}
}

// TestAsATransport: a simulated job takes as long as a real one.
func TestAsATransport(t *testing.T) {
	for name, j := range jobs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j.Begin = time.Now()
				r, err := j.Run(t.Context())
				require.NoError(t, err)
				require.Equal(t, j.Requests, r.Waits.N)
				took := perform(t, j)
				t.Log(took, r.Took)
				require.Equal(t, took, r.Took)
			})
		})
	}
}

// TestHandOver: a slot of the fleet is free for the next request when it has been handed over, one
// of a node at once.
func TestHandOver(t *testing.T) {
	for scope, want := range map[throttle.Scope]time.Duration{
		throttle.ScopeFleet: 10*100*time.Millisecond + 9*7*time.Millisecond, throttle.ScopeNode: 10 * 100 * time.Millisecond,
	} {
		j := &simulation.Job{
			Policies: []throttle.Policy{{Name: "one", Match: "/", Limit: throttle.Concurrency(1), Scope: scope}},
			Mix:      []simulation.Part{get("https://example.com/", 1)},
			Requests: 10, Nodes: 1, Workers: 3, Latency: 100 * time.Millisecond, HandOver: 7 * time.Millisecond, Begin: time.Now(),
		}
		r, err := j.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, r.Took)
	}
}
