package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestPlanIsTrue: a fleet of three nodes with a real Redis takes as long for a job as plan says,
// within a fiftieth. How long a slot takes from one request to the next is measured before, by
// another job.
func TestPlanIsTrue(t *testing.T) {
	soak.Only(t)
	server := redistest.Single(t)
	handOver := measureHandOver(t, server.Addr)
	t.Logf("a slot is handed over in %v", handOver)
	for _, of := range []struct {
		latency  time.Duration
		requests int
		policies []throttle.Policy
	}{
		{50 * time.Millisecond, 800, []throttle.Policy{{Name: "window", Limit: throttle.PerSecond(40)}}},
		{50 * time.Millisecond, 500, []throttle.Policy{{Name: "bucket", Limit: throttle.TokenBucket(30, time.Second, 60)}}},
		{50 * time.Millisecond, 300, []throttle.Policy{{Name: "slots", Limit: throttle.Concurrency(3)}}},
		{50 * time.Millisecond, 500, []throttle.Policy{{Name: "both", Limit: throttle.SlidingWindow(100, 5*time.Second)}, {Name: "few", Limit: throttle.Concurrency(4)}}},
	} {
		t.Run(of.policies[0].Name, func(t *testing.T) {
			req := upstream(t, of.latency)
			job := &simulation.Job{
				Policies: of.policies, Mix: []simulation.Part{{Request: req, Weight: 1}},
				Requests: of.requests, Nodes: 3, Workers: 4, Latency: of.latency, HandOver: handOver, Begin: time.Now(),
			}
			planned, err := job.Run(t.Context())
			require.NoError(t, err)
			took := perform(t, server.Addr, job)
			t.Logf("planned %v, took %v", planned.Took, took)
			require.InEpsilon(t, planned.Took, took, 0.02)
		})
	}
}

// upstream starts one that answers after a time, and returns a request to it.
func upstream(t *testing.T, latency time.Duration) *http.Request {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(latency) }))
	t.Cleanup(s.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	return req
}

// measureHandOver returns how much longer than its latency a request keeps a slot from others.
func measureHandOver(t *testing.T, address string) time.Duration {
	const latency, n, slots = 20 * time.Millisecond, 200, 2
	job := &simulation.Job{
		Policies: []throttle.Policy{{Name: "measure", Limit: throttle.Concurrency(slots)}},
		Mix:      []simulation.Part{{Request: upstream(t, latency), Weight: 1}},
		Requests: n, Nodes: 3, Workers: 4,
	}
	return max(0, perform(t, address, job)/(n/slots)-latency)
}

// perform does a job with as many stores as it has nodes.
func perform(t *testing.T, address string, j *simulation.Job) time.Duration {
	var left atomic.Int64
	left.Store(int64(j.Requests))
	var nodes []*throttle.Transport
	for range j.Nodes {
		client := redis.NewClient(&redis.Options{Addr: address})
		defer client.Close()
		require.NoError(t, client.Ping(context.Background()).Err())
		base := http.DefaultTransport.(*http.Transport).Clone()
		base.MaxIdleConnsPerHost = j.Workers
		defer base.CloseIdleConnections()
		nodes = append(nodes, throttle.Must(throttle.New(throttle.Config{Store: redisstore.New(client, nil), Policies: j.Policies, Base: base})))
	}
	begin := time.Now()
	var all sync.WaitGroup
	for _, node := range nodes {
		for range j.Workers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					resp, err := node.RoundTrip(j.Mix[0].Request)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
	return time.Since(begin)
}
