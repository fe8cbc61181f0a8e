package promthrottle_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/reference"
	"github.com/fleetthrottle/throttle/store"
)

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
