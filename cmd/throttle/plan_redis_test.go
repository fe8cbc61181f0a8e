package main

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestPlanIsTrue: a fleet of three nodes takes as long for a job as plan says, to the microsecond: plan counts
// in microseconds, and nodes sleep until a nanosecond. Transports, stores, client and scripts are those of production, on a real Redis that is told the
// virtual time, so the machine's load has no part in what is compared.
func TestPlanIsTrue(t *testing.T) {
	server := redistest.Single(t)
	v := newVirtualRedis(t, server.Addr)
	for _, of := range []struct {
		requests int
		policies []throttle.Policy
	}{
		{800, []throttle.Policy{{Name: "window", Match: "/", Limit: throttle.PerSecond(40)}}},
		{500, []throttle.Policy{{Name: "bucket", Match: "/", Limit: throttle.TokenBucket(30, time.Second, 60)}}},
		{300, []throttle.Policy{{Name: "slots", Match: "/", Limit: throttle.Concurrency(3)}}},
		{500, []throttle.Policy{{Name: "both", Match: "/", Limit: throttle.SlidingWindow(100, 5*time.Second)}, {Name: "few", Match: "/", Limit: throttle.Concurrency(4)}}},
	} {
		t.Run(of.policies[0].Name, func(t *testing.T) {
			const latency = 50 * time.Millisecond
			var took, planned time.Duration
			synctest.Test(t, func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
				require.NoError(t, err)
				job := &simulation.Job{
					Policies: of.policies, Mix: []simulation.Part{{Request: req, Weight: 1}},
					Requests: of.requests, Nodes: 3, Workers: 4, Latency: latency, Begin: time.Now(),
				}
				result, err := job.Run(t.Context())
				require.NoError(t, err)
				took, planned = perform(t, v, job), result.Took
			})
			require.Equal(t, planned, took.Truncate(time.Microsecond))
		})
	}
}

// An upstream answers after a time.
type upstream time.Duration

func (u upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(u))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// perform does a job with as many stores as it has nodes.
func perform(t *testing.T, v *virtualRedis, j *simulation.Job) time.Duration {
	var left atomic.Int64
	left.Store(int64(j.Requests))
	var nodes []*throttle.Transport
	for range j.Nodes {
		client := v.client()
		defer client.Close()
		require.NoError(t, client.Ping(t.Context()).Err())
		nodes = append(nodes, throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: redisstore.New(client, redisstore.Options{}), Policies: j.Policies, Base: upstream(j.Latency)})))
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
	defer time.Sleep(5 * time.Second) // of virtual time: subscriptions end a while after the last waiter
	return time.Since(begin)
}
