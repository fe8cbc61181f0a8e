package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/store"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// An admin serves operators of the proxy. No answer contains a key, a URL or a credential.
type admin struct {
	statuses func(context.Context) (map[throttle.Budget]throttle.Status, error)
	policies func() []throttle.Policy // in force
	file     func() policyfile.State
	metrics  prometheus.Gatherer
	local    bool        // only loopback reaches it
	stopping atomic.Bool // the proxy stops

	mu      sync.Mutex // held while the store is asked, so that concurrent requests share one call
	asked   time.Time
	budgets map[throttle.Budget]throttle.Status // as of asked
	err     error
}

// An answer of the store is reused for freshFor. A question to the store takes
// at most askedFor.
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
		// Defend against DNS rebinding, as the proxy does.
		if a.local && !inbound.IsLoopbackHost(r.Host) {
			http.Error(w, "reach this as localhost or by an address of the loopback", http.StatusForbidden)
			return
		}

		w.Header().Set("Cache-Control", "no-store")
		paths.ServeHTTP(w, r)
	})
}

// ask asks the store for the states of the budgets.
func (a *admin) ask() (map[throttle.Budget]throttle.Status, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	// Probes and scrapes share an answer, so that they cost the store little.
	if time.Since(a.asked) < freshFor {
		return a.budgets, a.err
	}
	ctx, stop := context.WithTimeout(context.Background(), askedFor)
	defer stop()
	a.budgets, a.err = a.statuses(ctx)
	a.asked = time.Now()
	return a.budgets, a.err
}

// ready reports whether the proxy can hold and forward requests.
func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	if why := a.unready(); why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "not ready: "+why+"\n")
		return
	}
	io.WriteString(w, "ready\n")
}

// unready returns why the proxy is not ready, or "". A new file that cannot be put in force does not count:
// its predecessor is in force.
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

// A closedPolicy is a policy with closed budgets.
type closedPolicy struct {
	Policy  string    `json:"policy"`
	Until   time.Time `json:"until"`   // when the last of them opens
	Budgets int       `json:"budgets"` // number of closed budgets that this proxy knows
}

// An upstreamsResult is the answer at /upstreams.
type upstreamsResult struct {
	Version  int            `json:"version"`
	Closed   []closedPolicy `json:"closed"`
	Complete bool           `json:"complete"` // the store answered every question
}

// upstreams lists closed policies. The status is 503 if there are any.
func (a *admin) upstreams(w http.ResponseWriter, _ *http.Request) {
	all, err := a.ask()
	result := upstreamsResult{outputVersion, a.closed(all), err == nil}
	w.Header().Set("Content-Type", "application/json")
	if len(result.Closed) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(result)
}

// closed returns the policies with closed budgets. Shadow policies hold nothing.
func (a *admin) closed(all map[throttle.Budget]throttle.Status) []closedPolicy {
	shadows := make(map[string]bool)
	for _, p := range a.policies() {
		shadows[p.Name] = p.Shadow
	}

	// An empty list is [] in JSON, not null.
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

		// The policy is open again when the last of its budgets is.
		c.Budgets++
		if until.After(c.Until) {
			c.Until = until
		}
	}

	slices.SortFunc(closed, func(x, y closedPolicy) int { return cmp.Compare(x.Policy, y.Policy) })
	return closed
}

// numbers is a Prometheus collector of the numbers of a server. It calls gauge or counter for each.
type numbers func(gauge, counter report)

// A report reports a number. Numbers of one name differ in their reason, if they have one.
type report func(name, help string, v int64, reason ...string)

// Describe implements [prometheus.Collector].
func (n numbers) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(n, to) }

// Collect implements [prometheus.Collector].
func (n numbers) Collect(to chan<- prometheus.Metric) {
	of := func(kind prometheus.ValueType) report {
		return func(name, help string, v int64, reason ...string) {
			to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"reason"}[:len(reason)], nil), kind, float64(v), reason...)
		}
	}
	n(of(prometheus.GaugeValue), of(prometheus.CounterValue))
}

// isApplied is 1 if the latest file is in force, or waits for its grace time, and 0 if not.
func isApplied(follower *policyfile.Follower) int64 {
	if follower.State().Err != nil {
		return 0
	}
	return 1
}

// news tells stderr of closed budgets, and of a store that does not answer. Events come per caller, news once
// per change. It is safe for concurrent use.
type news struct {
	now func() time.Time

	mu     sync.Mutex
	closed map[string]time.Time // reported end of the closure, by budget
	away   bool                 // the store's outage was reported
	offAt  time.Time            // the last request that passed because throttle was off
}

const (
	mostClosed = 1000        // how many closed budgets are reported
	sameEnd    = time.Second // two answers of one ban differ by less
	sameOff    = time.Minute // requests that pass in the same time off come within it
)

// of returns the line for an event, or "" if the event is no news.
func (n *news) of(e throttle.Event) string {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch e.Kind {
	case throttle.EventPenalized, throttle.EventClosed:
		return n.closing(e)
	case throttle.EventOpened:
		if _, told := n.closed[e.Budget]; told {
			delete(n.closed, e.Budget)
			return e.Budget + " is open again"
		}

	case throttle.EventOff:
		before := n.offAt
		n.offAt = n.now()
		if n.offAt.Sub(before) > sameOff {
			off := store.Off{By: e.Note.By, Reason: e.Note.Reason}
			return fmt.Sprintf("throttle is %v: requests pass without a limit", off)
		}

	case throttle.EventStoreFailed:
		if !n.away {
			n.away = true
			return "the store does not answer: " + e.Err.Error()
		}

	// After a failure a start means that the store answers again.
	case throttle.EventStarted:
		if n.away {
			n.away = false
			return "the store answers again"
		}
	}

	return ""
}

// closing is of for an event about a closed budget.
func (n *news) closing(e throttle.Event) string {
	now := n.now()
	end := now.Add(e.Duration)

	// A caller that meets a known closing is no news.
	if told, ok := n.closed[e.Budget]; ok && end.Before(told.Add(sameEnd)) {
		return ""
	}
	if n.closed == nil {
		n.closed = make(map[string]time.Time)
	}

	if len(n.closed) >= mostClosed {
		maps.DeleteFunc(n.closed, func(_ string, end time.Time) bool { return end.Before(now) }) // budgets that opened, and that no caller met since
		if len(n.closed) >= mostClosed {
			return ""
		}
	}

	n.closed[e.Budget] = end
	line := e.Budget + " is closed for " + brief(e.Duration) + ": "
	switch {
	case e.Kind == throttle.EventPenalized:
		return line + "the upstream refused a request"
	case e.Note != (store.PauseNote{}):
		return line + e.Note.String()
	}

	return line + "another program was refused, or an operator paused it"
}
