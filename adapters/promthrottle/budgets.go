package promthrottle

import (
	"context"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/telemetry"
)

// budgets is a collector that asks stores for the state of budgets at each scrape.
type budgets struct {
	sources []Source

	up, known, limit, used, booked, waiting, callers, wait, paused, ceiling, told, shareWaiting, shareServed *prometheus.Desc
}

// Budgets returns a collector of the state of the budgets of all policies of the sources. A policy
// with a Key has a budget for each key. Keys are no labels: the 16 budgets that the program used
// last are read and reported together. Each scrape asks the store once for each budget, so register
// the collector in few programs of a fleet. It follows SetPolicies.
//
// For a policy with a Share it reports the waiting shares: the 16 with the most waiters by their
// hashed names, as "throttle explain" prints them, and the rest together as "other". Callers
// without a share are "none", and shares beyond the number that a budget distinguishes are
// "common".
//
// One collector serves all transports and limiters of a program: a registry takes no second one.
func Budgets(sources ...Source) prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"policy"}, nil)
	}
	ofShare := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"policy", "share"}, nil)
	}
	return &budgets{
		sources: sources,
		up:      prometheus.NewDesc("throttle_store_up", "1 if the store answered all calls within half a second, and no caller waits for its answer; otherwise 0.", nil, nil),
		known:   desc("throttle_budgets", "How many budgets were read; of a policy with a Key those that callers of this program used: 16 means 16 or more."),
		limit:   desc("throttle_budget_limit", "The limit of the fullest budget: in a window, in flight, or in a burst; absent without a number: for Unlimited, and for Told until an answer tells one."),
		used:    desc("throttle_budget_used", "How much of the limit of the fullest budget the fleet uses now; absent without a number: for Unlimited, and for Told until an answer tells one."),
		booked:  desc("throttle_budget_booked", "The cost of starts that are booked for later, of all budgets together; not yet in the used part."),
		waiting: desc("throttle_budget_waiting", "The cost of the waiting requests of the fleet, with a booked start or in line, of all budgets together."),
		callers: desc("throttle_budget_waiting_callers", "The number of callers of the fleet in line, without a booked start, whatever their cost, of all budgets together."),
		wait:    desc("throttle_budget_next_start_seconds", "How long a new request would wait, without the unknown wait for a slot; the longest; +Inf if no start can be planned."),
		paused:  desc("throttle_budget_paused_seconds", "How long until the budget opens, after a penalty or a pause; the longest."),
		ceiling: desc("throttle_budget_ceiling", "The part of the limit that the fleet has learned to use; the lowest; 0 if the limit alone counts."),
		told:    desc("throttle_budget_told_seconds", "How long ago an answer told the limit of the fullest budget; absent if answers do not tell it."),

		shareWaiting: ofShare("throttle_share_waiting", "The cost of the requests of a share that wait in line; of the 16 shares that wait most, and of all others as \"other\"."),
		shareServed:  ofShare("throttle_share_served", "The cost of the starts of a share since its callers began to wait; 0 again when none of them waits; absent if the store does not know it."),
	}
}

// Describe implements [prometheus.Collector].
func (b *budgets) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.up, b.known, b.limit, b.used, b.booked, b.waiting, b.callers, b.wait, b.paused, b.ceiling, b.told, b.shareWaiting, b.shareServed} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. If a store does not answer, it reports up as 0.
func (b *budgets) Collect(to chan<- prometheus.Metric) {
	all, err := telemetry.Summaries(context.Background(), b.sources...)
	for policy, s := range all {
		b.send(to, policy, s)
	}
	up := 1.0
	if err != nil {
		up = 0
	}
	to <- prometheus.MustNewConstMetric(b.up, prometheus.GaugeValue, up)
}

// send reports the state of one policy's budgets.
func (b *budgets) send(to chan<- prometheus.Metric, policy string, s *telemetry.Summary) {
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, policy)
	}
	gauge(b.known, float64(s.Budgets))

	// Unlimited, and Told until an answer tells a limit, have no number: report no limit, and no use of it.
	if s.Limit.N() > 0 {
		gauge(b.limit, float64(s.Limit.Capacity()))
		gauge(b.used, float64(s.Used))
	}

	wait := s.Wait.Seconds()
	if s.Wait == throttle.Never {
		wait = math.Inf(1)
	}

	gauge(b.wait, wait)
	gauge(b.booked, float64(s.Booked))
	gauge(b.waiting, float64(s.Waiting))
	gauge(b.callers, float64(s.Callers))
	gauge(b.paused, s.Paused.Seconds())
	gauge(b.ceiling, s.Ceiling)
	if s.Told {
		gauge(b.told, s.ToldAgo.Seconds())
	}

	for _, l := range s.Shares {
		to <- prometheus.MustNewConstMetric(b.shareWaiting, prometheus.GaugeValue, float64(l.Waiting), policy, l.Name)

		// Below 0 the store does not know the number.
		if l.Served >= 0 {
			to <- prometheus.MustNewConstMetric(b.shareServed, prometheus.GaugeValue, float64(l.Served), policy, l.Name)
		}
	}
}
