package throttletest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/throttletest"
)

// An upstream counts as its limits say, and finds a client that does not keep them.

// policy is a policy of one limit, for all requests.
func policy(l throttle.Limit) []throttle.Policy {
	return []throttle.Policy{{Name: "api", Match: "/", Limit: l}}
}

// send sends a request, and returns its status.
func send(t *testing.T, by http.RoundTripper, method, url string) int {
	t.Helper()
	resp, err := by.RoundTrip(httptest.NewRequestWithContext(t.Context(), method, url, nil))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// TestUpstream_Counts sends requests at times, without throttle, and expects which of them have no room, what the limit counts
// then, and the Retry-After.
func TestUpstream_Counts(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		limit   throttle.Limit
		at      []time.Duration
		refused map[int]string // by the index of the request
	}{
		"sliding": {throttle.SlidingWindow(2, 10*time.Second), []time.Duration{0, 4000 * ms, 9999 * ms, 10_000 * ms, 13_999 * ms, 14_000 * ms},
			map[int]string{2: "3 of 2, 1ms", 4: "3 of 2, 1ms"}},
		"fixed": {throttle.FixedWindow(2, 10*time.Second), []time.Duration{8000 * ms, 9000 * ms, 9999 * ms, 10_000 * ms, 10_000 * ms, 10_001 * ms},
			map[int]string{2: "3 of 2, 1ms", 5: "3 of 2, 9.999s"}},
		"calendar": {throttle.CalendarWindow(1, throttle.Day, nil), []time.Duration{0, 24*time.Hour - ms, 24 * time.Hour},
			map[int]string{1: "2 of 1, 1ms"}},
		"paced": {throttle.LeakyBucket(4, time.Second), []time.Duration{0, 249 * ms, 250 * ms, 250 * ms, 500 * ms},
			map[int]string{1: "0 of 4, 1ms", 3: "0 of 4, 250ms"}},
		"bucket": {throttle.TokenBucket(2, time.Second, 3), []time.Duration{0, 0, 0, 499 * ms, 500 * ms, 500 * ms, 10_000 * ms, 10_000 * ms, 10_000 * ms, 10_000 * ms},
			map[int]string{3: "0 of 2, 1ms", 5: "0 of 2, 500ms", 9: "0 of 2, 500ms"}},
		"unlimited": {throttle.Unlimited(), []time.Duration{0, 0, 0, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last throttletest.Refusal
				api := throttletest.Must(throttletest.New(throttletest.Options{Policies: policy(c.limit), Refuse: func(w http.ResponseWriter, r *http.Request, refusal throttletest.Refusal) {
					last = refusal
					throttletest.TooManyRequests(w, r, refusal)
				}}))

				begun := time.Now() // midnight in UTC
				got := map[int]string{}
				for i, at := range c.at {
					time.Sleep(time.Until(begun.Add(at)))
					if send(t, api, http.MethodGet, "https://a.example/x") == http.StatusTooManyRequests {
						all := api.Excesses()
						got[i] = fmt.Sprintf("%d of %d, %v", all[len(all)-1].Count, c.limit.N(), last.RetryAfter)
					}
				}

				if c.refused == nil {
					c.refused = map[int]string{}
				}
				require.Equal(t, c.refused, got)
				require.Len(t, api.Excesses(), len(got))
				require.Len(t, api.Arrivals(), len(c.at))
			})
		})
	}
}

// TestUpstream_InFlight: a request is in flight until its answer is written.
func TestUpstream_InFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := throttletest.Must(throttletest.New(throttletest.Options{
			Policies: policy(throttle.Concurrency(2)),
			Answer:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }),
		}))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { send(t, api, http.MethodGet, "https://a.example/") })
		}
		synctest.Wait()
		require.Equal(t, http.StatusTooManyRequests, send(t, api, http.MethodGet, "https://a.example/"))
		all.Wait()
		require.Equal(t, http.StatusOK, send(t, api, http.MethodGet, "https://a.example/"))
		require.Equal(t, map[string]int{"api": 1}, api.Refusals())
	})
}

// TestUpstream_ThrottleKeepsEachLimit: behind throttle no request finds no room, whatever the limit is, also where requests
// cost more and have keys.
func TestUpstream_ThrottleKeepsEachLimit(t *testing.T) {
	for name, limit := range map[string]throttle.Limit{
		"sliding": throttle.PerSecond(7), "fixed": throttle.FixedWindow(7, time.Second), "paced": throttle.LeakyBucket(7, time.Second),
		"bucket": throttle.TokenBucket(7, time.Second, 20), "slots": throttle.Concurrency(3), "hour": throttle.PerHour(20),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := []throttle.Policy{{Name: "api", Match: "a.example/", Limit: limit, Key: throttle.Header("X-Shop"), Cost: func(r *http.Request) int {
					return 1 + len(r.Header.Get("X-Cost"))
				}}}
				api := throttletest.Must(throttletest.New(throttletest.Options{Policies: table, Ban: time.Minute}))
				client := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: table, Base: api, MaxWait: throttle.Forever}))
				var all sync.WaitGroup
				for i := range 60 {
					all.Go(func() {
						req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/x", nil)
						req.Header = http.Header{"X-Shop": {fmt.Sprint(i % 3)}, "X-Cost": {strings.Repeat("x", i%2)}}
						resp, err := client.RoundTrip(req)
						if err != nil {
							t.Error(err)
							return
						}
						resp.Body.Close()
					})
				}
				all.Wait()
				require.Empty(t, api.Excesses())
				require.Zero(t, api.Bans())
				require.Len(t, api.Arrivals(), 60)
			})
		})
	}
}

// TestUpstream_Bans: after a request without room the budget refuses all, until the ban ends, and others go on.
func TestUpstream_Bans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []throttle.Policy{
			{Name: "all", Match: "/", Limit: throttle.PerSecond(100)},
			{Name: "send", Match: "POST /send", Limit: throttle.PerSecond(1), Shadow: true}, // which the client does not enforce
		}
		api := throttletest.Must(throttletest.New(throttletest.Options{Policies: table, Ban: time.Minute}))
		require.Equal(t, 200, send(t, api, http.MethodPost, "https://a.example/send"))
		require.Equal(t, 429, send(t, api, http.MethodPost, "https://a.example/send"))
		require.Equal(t, 200, send(t, api, http.MethodGet, "https://a.example/send"))
		time.Sleep(time.Minute - time.Millisecond)
		require.Equal(t, 429, send(t, api, http.MethodPost, "https://a.example/send"), "the ban")
		time.Sleep(time.Millisecond)
		require.Equal(t, 200, send(t, api, http.MethodPost, "https://a.example/send"))
		require.Equal(t, 1, api.Bans())
		require.Len(t, api.Excesses(), 1)
		require.Equal(t, map[string]int{"send": 2}, api.Refusals())
		last := api.Arrivals()[2]
		require.Equal(t, []string{"all"}, last.Policies)
		require.Empty(t, last.Refused)
	})
}

// TestUpstream_Lenient: an upstream that refuses nobody records all the same, and no ban hides what comes later.
func TestUpstream_Lenient(t *testing.T) {
	api := throttletest.Must(throttletest.New(throttletest.Options{Policies: policy(throttle.PerHour(1)), Lenient: true, Ban: time.Minute}))
	for range 3 {
		require.Equal(t, 200, send(t, api, http.MethodGet, "https://a.example/"))
	}
	require.Empty(t, api.Refusals())
	all := api.Excesses()
	require.Len(t, all, 2)
	require.Equal(t, 3, all[1].Count)
	require.Equal(t, "api", all[1].Policy)
	require.Zero(t, api.Bans())
}

// TestUpstream_Server: served at a URL, an upstream sees host, key and body as the client does, and its answer has the whole body.
func TestUpstream_Server(t *testing.T) {
	table := []throttle.Policy{{Name: "api", Match: "/", Limit: throttle.PerHour(5), Cost: func(r *http.Request) int {
		body, err := r.GetBody()
		if err != nil {
			return 1
		}
		text, _ := io.ReadAll(body)
		return len(text)
	}}}
	api := throttletest.Must(throttletest.New(throttletest.Options{Policies: table, Answer: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}))
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	post := func(body string) (int, string) {
		resp, err := http.Post(server.URL+"/x", "text/plain", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	status, text := post("abc")
	require.Equal(t, 200, status)
	require.Equal(t, "abc", text)
	status, text = post("abc")
	require.Equal(t, 429, status)
	require.Equal(t, "too many requests: api\n", text)
	require.Equal(t, 6, api.Excesses()[0].Count)
}

// TestUpstream_Mistakes: a table without policies, and wrong policies, are refused; a context that has ended sends nothing.
func TestUpstream_Mistakes(t *testing.T) {
	_, err := throttletest.New(throttletest.Options{})
	require.ErrorContains(t, err, "Options.Policies is required")
	_, err = throttletest.New(throttletest.Options{Policies: policy(throttle.PerSecond(0))})
	_, ok := errors.AsType[*throttle.ConfigError](err)
	require.True(t, ok, err)
	require.Panics(t, func() { throttletest.Must(nil, err) })

	api := throttletest.Must(throttletest.New(throttletest.Options{Policies: policy(throttle.PerSecond(1))}))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = api.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPost, "https://a.example/", strings.NewReader("x")))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, api.Arrivals())
	require.Equal(t, 1, throttletest.Refusal{}.Seconds())
	require.Equal(t, 2, throttletest.Refusal{RetryAfter: 1001 * time.Millisecond}.Seconds())
}
