package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/policyfile"
)

// An admin serves what an operator asks of a proxy. No answer names a key, a URL or a credential.
type admin struct {
	statuses func(context.Context) (map[throttle.Budget]throttle.Status, error)
	policies func() []throttle.Policy // in force
	file     func() policyfile.State
	metrics  prometheus.Gatherer
	local    bool        // only the loopback reaches it
	stopping atomic.Bool // the proxy ends

	mu      sync.Mutex // is held while the store is asked, so that it is asked once for all
	asked   time.Time
	budgets map[throttle.Budget]throttle.Status // as they were then
	err     error
}

// What the store said is good for freshFor. It is asked for askedFor at most.
const (
	freshFor = time.Second
	askedFor = 2 * time.Second
)

// handler returns the handler of the admin's paths.
func (a *admin) handler() http.Handler {
	paths := http.NewServeMux()
	paths.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "alive\n") })
	paths.HandleFunc("GET /readyz", a.ready)
	paths.HandleFunc("GET /upstreams", a.upstreams)
	paths.Handle("GET /metrics", promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.local && !inbound.IsLoopbackHost(r.Host) {
			http.Error(w, "reach this as localhost or by an address of the loopback", http.StatusForbidden)
			return
		}

		w.Header().Set("Cache-Control", "no-store")
		paths.ServeHTTP(w, r)
	})
}

// ask asks the store what budgets are like.
func (a *admin) ask() (map[throttle.Budget]throttle.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.asked) < freshFor {
		return a.budgets, a.err
	}
	ctx, stop := context.WithTimeout(context.Background(), askedFor)
	defer stop()
	a.budgets, a.err = a.statuses(ctx)
	a.asked = time.Now()
	return a.budgets, a.err
}

// ready says whether the proxy can hold and send requests.
func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	if why := a.unready(); why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "not ready: "+why+"\n")
		return
	}
	io.WriteString(w, "ready\n")
}

// unready says why the proxy is not ready; "": it is. A file that was seen and cannot be in force
// does not count: the one before is.
func (a *admin) unready() string {
	if a.stopping.Load() {
		return "the proxy ends"
	}
	if a.file().InForce == "" {
		return "no file is in force"
	}
	if _, err := a.ask(); err != nil {
		return "the store of the budgets does not answer"
	}
	return ""
}

// A closedPolicy is a policy with budgets that are closed.
type closedPolicy struct {
	Policy  string    `json:"policy"`
	Until   time.Time `json:"until"`   // when the last of them opens
	Budgets int       `json:"budgets"` // how many of those that this proxy knows
}

// An upstreamsResult is the answer at /upstreams.
type upstreamsResult struct {
	Version  int            `json:"version"`
	Closed   []closedPolicy `json:"closed"`
	Complete bool           `json:"complete"` // the store answered all that it was asked
}

// upstreams says what is closed, by a penalty or by hand. Its status is 503 while anything is.
func (a *admin) upstreams(w http.ResponseWriter, _ *http.Request) {
	all, err := a.ask()
	result := upstreamsResult{outputVersion, a.closed(all), err == nil}
	w.Header().Set("Content-Type", "application/json")
	if len(result.Closed) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(result)
}

// closed returns the policies of budgets that are closed. Shadow policies hold nothing.
func (a *admin) closed(all map[throttle.Budget]throttle.Status) []closedPolicy {
	shadows := make(map[string]bool)
	for _, p := range a.policies() {
		shadows[p.Name] = p.Shadow
	}

	closed := []closedPolicy{}
	for budget, b := range all {
		if b.Paused <= 0 || shadows[budget.Policy] {
			continue
		}

		until := time.Now().Add(b.Paused).UTC().Truncate(time.Millisecond)
		i := slices.IndexFunc(closed, func(c closedPolicy) bool { return c.Policy == budget.Policy })
		if i < 0 {
			closed = append(closed, closedPolicy{budget.Policy, until, 1})
			continue
		}

		c := &closed[i]
		c.Budgets++
		if until.After(c.Until) {
			c.Until = until
		}
	}

	slices.SortFunc(closed, func(x, y closedPolicy) int { return cmp.Compare(x.Policy, y.Policy) })
	return closed
}
