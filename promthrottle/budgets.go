package promthrottle

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/telemetry"
)

// askTime is how long the store may take to say what all budgets are like. It is less than
// a scrape may take, even where one is made each second: all other metrics must be told
// while the store is away.
const askTime = 500 * time.Millisecond

// A budgets collector asks the store, at each scrape, what budgets are like.
type budgets struct {
	all telemetry.Budgets

	up, limit, used, waiting, wait, paused, ceiling *prometheus.Desc
}

// Budgets returns a collector of what the budgets of a transport's policies are like: of
// those without a Key, because keys are no labels. Each scrape asks the store once for
// each of them, so let few programs of a fleet have it. It is of the policies as they are
// now.
func Budgets(t *throttle.Transport, policies []throttle.Policy) prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"policy"}, nil)
	}
	return &budgets{
		all:     telemetry.BudgetsOf(t, policies),
		up:      prometheus.NewDesc("throttle_store_up", "Whether the store answered when it was asked what budgets are like.", nil, nil),
		limit:   desc("throttle_limit", "How much the limit allows: in a window, in flight, or in a burst."),
		used:    desc("throttle_used", "How much of the limit is used now."),
		waiting: desc("throttle_waiting", "How many requests of the fleet wait for this budget."),
		wait:    desc("throttle_next_start_seconds", "How long a request would wait if it came now; +Inf if no start can be planned."),
		paused:  desc("throttle_paused_seconds", "For how long the budget is still closed, by a penalty or by hand."),
		ceiling: desc("throttle_ceiling", "How much of the limit the fleet has learned to use, 0 if the limit alone counts."),
	}
}

// Describe implements [prometheus.Collector].
func (b *budgets) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.up, b.limit, b.used, b.waiting, b.wait, b.paused, b.ceiling} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (b *budgets) Collect(to chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), askTime)
	defer stop()
	up := 1.0
	if err := b.all.Ask(ctx, func(policy string, st throttle.Status) { b.send(to, policy, st) }); err != nil {
		up = 0
	}
	to <- prometheus.MustNewConstMetric(b.up, prometheus.GaugeValue, up)
}

// send sends what one budget is like.
func (b *budgets) send(to chan<- prometheus.Metric, policy string, st throttle.Status) {
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, policy)
	}
	if st.Limit.Kind() != throttle.KindUnlimited {
		gauge(b.limit, float64(st.Limit.Capacity()))
		gauge(b.used, float64(st.Used))
	}
	wait := st.Wait.Seconds()
	if st.Wait == throttle.Never {
		wait = math.Inf(1)
	}
	gauge(b.wait, wait)
	gauge(b.waiting, float64(st.Waiting))
	gauge(b.paused, st.Paused.Seconds())
	gauge(b.ceiling, st.Ceiling)
}
