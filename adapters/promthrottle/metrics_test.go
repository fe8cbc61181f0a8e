package promthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
	"github.com/fleetthrottle/throttle/internal/lab/reference"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// table has a limit that fills at once, and one that only counts.
var table = []throttle.Policy{
	{Name: "calls", Match: "example.com/", Limit: throttle.SlidingWindow(2, time.Minute), Jitter: -1},
	{Name: "trial", Match: "example.com/", Limit: throttle.SlidingWindow(1, time.Minute), Jitter: -1, Shadow: true},
	{Name: "apps", Match: "example.com/", Limit: throttle.PerSecond(100), Key: throttle.Host},
}

// closing returns the policies, which a 429 closes all.
func closing(policies []throttle.Policy) []throttle.Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		policies[i].Answer = throttle.RetryAfter
	}
	return policies
}

// A fake answers 200, or what the request's header X-Answer says.
type fake struct{}

func (fake) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if req.Header.Get("X-Answer") == "429" {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	return w.Result(), nil
}

// following returns metrics that follow limiters with these policies.
func following(t *testing.T, policies []throttle.Policy) (*promthrottle.Metrics, *throttle.Limiters) {
	t.Helper()
	limiters, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: policies})
	require.NoError(t, err)
	m := promthrottle.New()
	m.Follow(limiters)
	return m, limiters
}

// get sends a request.
func get(t *throttle.Transport, ctx context.Context, answer string) error {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/", nil)
	req.Header.Set("X-Answer", answer)
	resp, err := t.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// TestMetrics: what becomes of requests is counted, by the policy that held them.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promthrottle.New()
		transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: closing(table), Base: fake{}, Observe: m.Observe}))
		m.Follow(transport)
		ctx := t.Context()
		require.NoError(t, get(transport, ctx, ""))
		require.NoError(t, get(transport, ctx, ""))
		require.ErrorIs(t, get(transport, throttle.WithMaxWait(ctx, -1), ""), throttle.ErrLimited)
		require.NoError(t, get(transport, ctx, "429")) // after a minute
		leaves, cancel := context.WithTimeoutCause(ctx, time.Hour, errors.New("enough"))
		defer cancel()
		go func() { time.Sleep(time.Second); cancel() }()
		require.Error(t, get(transport, leaves, ""))

		require.NoError(t, testutil.CollectAndCompare(m, strings.NewReader(`
# HELP throttle_requests_total Requests that were started, refused or gave up, by the policy that held the request last; none if no policy did.
# TYPE throttle_requests_total counter
throttle_requests_total{policy="apps",result="gave_up"} 0
throttle_requests_total{policy="apps",result="refused"} 0
throttle_requests_total{policy="apps",result="started"} 0
throttle_requests_total{policy="calls",result="gave_up"} 1
throttle_requests_total{policy="calls",result="refused"} 1
throttle_requests_total{policy="calls",result="started"} 1
throttle_requests_total{policy="none",result="gave_up"} 0
throttle_requests_total{policy="none",result="refused"} 0
throttle_requests_total{policy="none",result="started"} 2
throttle_requests_total{policy="other",result="gave_up"} 0
throttle_requests_total{policy="other",result="refused"} 0
throttle_requests_total{policy="other",result="started"} 0
throttle_requests_total{policy="trial",result="gave_up"} 0
throttle_requests_total{policy="trial",result="refused"} 0
throttle_requests_total{policy="trial",result="started"} 0
`), "throttle_requests_total"))

		wait := histogramOf(t, m, "throttle_wait_seconds", "calls")
		require.Equal(t, uint64(3), wait.GetSampleCount())
		require.InDelta(t, 61, wait.GetSampleSum(), 0.1) // a minute, and the second of the one that left
		require.NotEmpty(t, wait.GetBucket())
		require.NotNil(t, wait.Schema, "no native histogram")
		require.Positive(t, histogramOf(t, m, "throttle_shadow_wait_seconds", "trial").GetSampleCount())
		until := gauge(t, m, "throttle_closed_until_timestamp_seconds", "calls")
		require.InDelta(t, float64(time.Now().Unix()+29), until, 1.1)
	})
}

// TestTheZeroMetrics: metrics that New has not made are those of New, whatever is asked of them first.
func TestTheZeroMetrics(t *testing.T) {
	transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: closing(table), Base: fake{}}))
	for name, first := range map[string]func(*promthrottle.Metrics){
		"Follow":   func(m *promthrottle.Metrics) { m.Follow(transport) },
		"Observe":  func(m *promthrottle.Metrics) { m.Observe(t.Context(), throttle.Event{Kind: throttle.EventShadowed}) },
		"Collect":  func(m *promthrottle.Metrics) { testutil.CollectAndCount(m) },
		"Describe": func(m *promthrottle.Metrics) { require.NoError(t, prometheus.NewRegistry().Register(m)) },
	} {
		zero := new(promthrottle.Metrics)
		first(zero)
		zero.Observe(t.Context(), throttle.Event{Kind: throttle.EventStarted})
		require.Equal(t, uint64(1), histogramOf(t, zero, "throttle_wait_seconds", promthrottle.None).GetSampleCount(), name)
	}
}

// TestSeriesAreBounded: a policy that is not in the table is another one, and a new table
// adds its own.
func TestSeriesAreBounded(t *testing.T) {
	m, limiters := following(t, table)
	series := testutil.CollectAndCount(m)
	for _, policy := range []string{"made-up", "another"} {
		m.Observe(t.Context(), throttle.Event{Kind: throttle.EventStale, Policy: policy})
	}
	m.Observe(t.Context(), throttle.Event{Kind: 200, Policy: "calls"})
	require.Equal(t, series, testutil.CollectAndCount(m))
	require.NoError(t, limiters.SetPolicies([]throttle.Policy{{Name: "fresh", Limit: throttle.PerSecond(1)}}))
	store := len(telemetry.Causes()) + 1
	require.Equal(t, (series-store)/(len(table)+2)*(len(table)+3)+store, testutil.CollectAndCount(m))
}

// TestSeriesFollow: an event finds the series of a policy that a source has got since the last scrape, also an event
// without a budget; and a policy that no source has gets its series from its budget's first event on.
func TestSeriesFollow(t *testing.T) {
	for name, e := range map[string]throttle.Event{
		"of the source":   {Kind: throttle.EventRefused, Policy: "fresh"},
		"of nobody known": {Kind: throttle.EventRefused, Policy: "unfollowed", Budget: "unfollowed/1234"},
		"of no table":     {Kind: throttle.EventRefused, Policy: "made-up"},
		"no text":         {Kind: throttle.EventRefused, Policy: "\xff", Budget: "\xff/1234"},
		"none":            {Kind: throttle.EventRefused},
	} {
		m, limiters := following(t, table)
		require.NoError(t, limiters.SetPolicies([]throttle.Policy{{Name: "fresh", Limit: throttle.PerSecond(1)}}))
		m.Observe(t.Context(), e)
		m.Observe(t.Context(), e)
		label := map[string]string{"of the source": "fresh", "of nobody known": "unfollowed", "none": promthrottle.None}[name]
		if label == "" {
			label = promthrottle.Other
		}
		require.Equal(t, uint64(2), histogramOf(t, m, "throttle_wait_seconds", label).GetSampleCount(), name)
	}
}

// TestFollowWhileObserving: tables change while events come from many goroutines, and none is lost.
func TestFollowWhileObserving(t *testing.T) {
	m, limiters := following(t, table)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			policy := fmt.Sprint("p", i)
			for n := range 100 {
				if n == 50 {
					_ = limiters.SetPolicies([]throttle.Policy{{Name: policy, Limit: throttle.PerSecond(1)}})
					m.Follow(limiters)
					testutil.CollectAndCount(m)
				}
				m.Observe(t.Context(), throttle.Event{Kind: throttle.EventStarted, Policy: policy, Budget: policy + "/1"})
			}
		})
	}
	all.Wait()
	for i := range 8 {
		require.Equal(t, uint64(100), histogramOf(t, m, "throttle_wait_seconds", fmt.Sprint("p", i)).GetSampleCount())
	}
}

// TestLint: names and units are as Prometheus wants them.
func TestLint(t *testing.T) {
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: table}))
	m := promthrottle.New()
	m.Follow(transport)
	for _, c := range []prometheus.Collector{m, promthrottle.Budgets(transport)} {
		problems, err := testutil.CollectAndLint(c)
		require.NoError(t, err)
		require.Empty(t, problems)
	}
}

// TestObserveAllocatesNothing, because it is on the way of each request.
func TestObserveAllocatesNothing(t *testing.T) {
	m, _ := following(t, table)
	for _, e := range []throttle.Event{
		{Kind: throttle.EventStarted}, {Kind: throttle.EventStarted, Policy: "calls", Duration: time.Second},
		{Kind: throttle.EventWaiting, Policy: "calls"}, {Kind: throttle.EventStale, Policy: "trial"},
	} {
		m.Observe(t.Context(), e)
		require.Zero(t, testing.AllocsPerRun(100, func() { m.Observe(t.Context(), e) }), "%v", e.Kind)
	}
}

// find returns the metric of a policy.
func find(t *testing.T, c prometheus.Collector, name, policy string) *dto.Metric {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == policy) {
				return m
			}
		}
	}
	require.Fail(t, "no such metric", "%s of %s", name, policy)
	return nil
}

func histogramOf(t *testing.T, c prometheus.Collector, name, policy string) *dto.Histogram {
	t.Helper()
	return find(t, c, name, policy).GetHistogram()
}

func gauge(t *testing.T, c prometheus.Collector, name, policy string) float64 {
	t.Helper()
	return find(t, c, name, policy).GetGauge().GetValue()
}

// A waitingShare is a source with one budget: a share waits for it, and an answer told its limit.
type waitingShare struct{}

func (waitingShare) Policies() []throttle.Policy { return []throttle.Policy{{Name: "calls"}} }

func (waitingShare) Statuses(context.Context) (map[throttle.Budget]throttle.Status, error) {
	return map[throttle.Budget]throttle.Status{store.BudgetOf("calls", ""): {
		Limit: throttle.Told(), Told: throttle.PerSecond(2), ToldAgo: time.Second, Used: 1, Shares: []store.ShareStatus{{Waiting: 1}},
	}}, nil
}

// described finds the name, the help and the labels of a description.
var described = regexp.MustCompile(`^Desc\{fqName: "(.*?)", help: ("(?:[^"\\]|\\.)*"),.* constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// TestReference: docs/reference/metrics.md has each metric as its collector describes it. $UPDATE writes the section.
func TestReference(t *testing.T) {
	page := new(reference.Page)
	page.Section("Prometheus")
	page.Text("Every series of a program exists from the start, with 0.")

	metrics := promthrottle.New()
	metrics.Follow(waitingShare{})
	page.Text("### In each program")
	values := describe(t, page, metrics)

	page.Text("### Of the budgets")
	page.Text("`promthrottle.Budgets` reads them at each scrape. They are absent while no budget of the policy is known, and while the store does not answer.")
	describe(t, page, promthrottle.Budgets(waitingShare{}))

	page.Text("### Values of labels")
	page.Table("label", "values")
	page.Row("`policy`", "the names of policies; `"+promthrottle.None+"`: no policy held the request; `"+promthrottle.Other+"`: the policy is in no table; a policy with such a name shares the series")

	for _, label := range slices.Sorted(maps.Keys(values)) {
		if label != "policy" {
			page.Row(reference.Code(label), "`"+strings.Join(slices.Sorted(maps.Keys(values[label])), "`, `")+"`")
		}
	}

	page.Row("`share`", "the hashed name of a share, as `throttle explain` prints it; `none`: callers without a share; `common`: the shares that a budget cannot tell apart; `other`: all others")
	page.CompareSection(t, "../..", "metrics")
}

// describe adds a table of the metrics of a collector, and returns the values of their labels, by label.
func describe(t *testing.T, page *reference.Page, c prometheus.Collector) map[string]map[string]bool {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)

	types, values := make(map[string]string), make(map[string]map[string]bool)
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if values[l.GetName()] == nil {
					values[l.GetName()] = make(map[string]bool)
				}
				values[l.GetName()][l.GetValue()] = true
			}
		}
	}

	descriptions := make(chan *prometheus.Desc, 100)
	c.Describe(descriptions)
	close(descriptions)
	page.Table("metric", "type", "unit", "labels", "meaning")

	for d := range descriptions {
		m := described.FindStringSubmatch(d.String())
		require.NotNil(t, m, d.String())
		require.NotEmpty(t, types[m[1]], "the source has no sample of %s", m[1])

		unit := ""
		if strings.Contains(m[1], "_seconds") {
			unit = "s"
		}

		var labels []string
		for label := range strings.SplitSeq(m[3], ",") {
			labels = append(labels, reference.Code(label))
		}

		help, err := strconv.Unquote(m[2])
		require.NoError(t, err)
		page.Row(reference.Code(m[1]), types[m[1]], unit, strings.Join(labels, ", "), help)
	}

	return values
}
