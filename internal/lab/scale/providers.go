package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/redisstore"
)

const (
	pods      = 60
	podsWatch = time.Minute
)

// A provider has an API that the pods call, at half of what its limits allow.
type provider struct {
	name     string
	policies []throttle.Policy // of its preset
	perSec   float64           // requests of all pods in a second
	limit    string            // perSec is half of it
	requests []string          // a method and a URL each; one is chosen at random
	body     string            // of every request
}

// providers are the four of docs/run/production.md.
func providers() []provider {
	return []provider{
		{
			"dingtalk", dingtalk.Policies(dingtalk.Options{App: "app", Company: "company"}), 30, "3 APIs of 20/s",
			[]string{
				"POST https://oapi.dingtalk.com/topapi/v2/user/get", "POST https://oapi.dingtalk.com/topapi/v2/user/list",
				"POST https://oapi.dingtalk.com/topapi/v2/department/listsub",
			}, "",
		},
		{
			"feishu", feishu.Policies(feishu.Options{App: "app", Tenant: "tenant"}), 16, "2 APIs of 1,000/m",
			[]string{"GET https://open.feishu.cn/open-apis/contact/v3/users", "POST https://open.feishu.cn/open-apis/im/v1/messages"}, "",
		},
		{
			"openai", openai.Policies(openai.Options{Requests: 500, Tokens: 200_000, Project: "project"}), 4, "500/m, 200,000 tokens/m",
			[]string{"POST https://api.openai.com/v1/chat/completions"}, `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 160) + `"}]}`,
		},
		{
			"github", github.Policies(github.Options{Account: "account"}), 0.7, "5,000/h",
			[]string{"GET https://api.github.com/repos/o/r/issues"}, "",
		},
	}
}

// providers prints what four providers cost that are called by sixty pods, while there is room.
func (r report) providers() {
	r.say("\n## %d pods, four providers by their presets, half of each limit, simulated, 1 ms to Redis and back, %v\n", pods, podsWatch)
	r.say("| providers | of | requests/s | wait p50 | p99 | calls of scripts/s | a request | bytes a request | messages/s | connections | keys | their bytes | a call, µs | of a core |")
	r.say("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	all := providers()
	for i := range all {
		r.provide(all[i].name, all[i].limit, all[i:i+1])
	}
	r.provide("all four", "", all)
}

// provide has the pods call some providers, and prints the row of what that cost.
func (r report) provide(title, limit string, of []provider) {
	var p podsRun
	inBubble(r.t, title, func() error { return p.play(r.b, of) })
	n, seconds := float64(len(p.waits)), podsWatch.Seconds()
	calls := float64(p.load.Calls)
	r.say("| %s | %s | %.1f | %v | %v | %.1f | %.2f | %.0f | %.1f | %d | %d | %d | %.0f | %.2f %% |", title, limit, n/seconds,
		short(stat.Quantile(p.waits, 0.5)), short(stat.Quantile(p.waits, 0.99)), calls/seconds, calls/n,
		float64(p.load.BytesIn+p.load.BytesOut)/n, float64(p.load.Published())/seconds, p.links, p.keys, p.bytes, p.script, calls/seconds*p.script/1e4)
}

// A podsRun has the observations of pods that call providers.
type podsRun struct {
	mu          sync.Mutex
	waits       []time.Duration // of each request, guarded by mu
	load        redissim.Load   // of the server, while it was watched
	links       int
	keys, bytes int     // in Redis when all callers were gone
	script      float64 // microseconds of a call of a script
}

// play lets the pods call for podsWatch, after they have found their pace, and sets the observations.
func (p *podsRun) play(b *redissim.Backend, of []provider) error {
	if err := b.Reset(); err != nil {
		return err
	}

	n := redissim.New(b, 0, 0, time.Millisecond, 1)
	var policies []throttle.Policy
	for _, pr := range of {
		policies = append(policies, pr.policies...)
	}

	var transports []http.RoundTripper
	var closers []io.Closer
	for range pods {
		client := n.Client()
		closers = append(closers, client)

		t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: redisstore.New(client, redisstore.Options{}), Policies: policies, Base: p})
		if err != nil {
			return err
		}

		transports = append(transports, t)
	}

	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i, pr := range of {
		all.Go(func() { p.arrivals(ctx, n, pr, transports, uint64(i), &all) })
	}

	// Let the pods find their pace, and then count.
	time.Sleep(10 * time.Second)
	p.mu.Lock()
	p.waits = nil
	p.mu.Unlock()
	before := n.Loads()[0]
	time.Sleep(podsWatch)
	p.load, p.links = n.Loads()[0].Minus(before), n.Links()
	stop()
	all.Wait()

	// What is left in Redis when all callers are gone.
	var err error
	p.keys, p.bytes, err = b.Rows()
	n.Fail(err)
	time.Sleep(time.Minute) // until the stores have told Redis that their callers left

	for _, c := range closers {
		n.Fail(c.Close())
	}

	time.Sleep(time.Minute) // until the closed clients are at rest
	p.script, err = b.Replay()
	n.Fail(err)

	return n.Err()
}

// arrivals lets requests for one provider come at random times to random pods, until ctx ends. It adds each to all.
func (p *podsRun) arrivals(ctx context.Context, n *redissim.Network, pr provider, transports []http.RoundTripper, seed uint64, all *sync.WaitGroup) {
	random := rand.New(rand.NewPCG(1, seed))
	for {
		pause(ctx, time.Duration(random.ExpFloat64()/pr.perSec*float64(time.Second)))
		if ctx.Err() != nil {
			return
		}
		pod, what := transports[random.IntN(len(transports))], pr.requests[random.IntN(len(pr.requests))]
		all.Go(func() { n.Fail(p.call(pod, what, pr.body)) })
	}
}

// askedAt is the key of a request's context under which the time lies when it was made.
type askedAt struct{}

// call makes one request; what is its method and its URL.
func (p *podsRun) call(pod http.RoundTripper, what, body string) error {
	method, url, _ := strings.Cut(what, " ")
	ctx := context.WithValue(context.Background(), askedAt{}, time.Now())
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := pod.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return resp.Body.Close()
}

// RoundTrip is the provider: it notes how long the request was held, and answers at once.
func (p *podsRun) RoundTrip(req *http.Request) (*http.Response, error) {
	asked, _ := req.Context().Value(askedAt{}).(time.Time)
	p.mu.Lock()
	p.waits = append(p.waits, time.Since(asked))
	p.mu.Unlock()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}
