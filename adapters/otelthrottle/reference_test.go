package otelthrottle_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/otelthrottle"
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

// TestReference: docs/reference/metrics.md has each instrument as it is described. $UPDATE writes the section.
func TestReference(t *testing.T) {
	s := newStage(t)
	_, err := otelthrottle.Budgets(s.meters, waitingShare{})
	require.NoError(t, err)

	for _, kind := range []throttle.EventKind{throttle.EventStarted, throttle.EventShadowed} {
		s.Observe(t.Context(), throttle.Event{Kind: kind, Policy: "calls"})
	}

	all := s.collect()
	require.Len(t, all, 19)
	page := new(reference.Page)
	page.Section("OpenTelemetry")
	page.Text("Those of budgets and of shares, `throttle.store.up`, `throttle.queued_requests`, `throttle.waiting_callers` and `throttle.penalty.remaining` need `otelthrottle.Budgets`.")
	page.Table("instrument", "type", "unit", "attributes", "meaning")

	values := make(map[string]map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		kind, sets := instrument(t, m)

		attributes := make(map[string]bool)
		for _, set := range sets {
			for _, a := range set.ToSlice() {
				attributes[reference.Code(string(a.Key))] = true
				if values[string(a.Key)] == nil {
					values[string(a.Key)] = make(map[string]bool)
				}
				values[string(a.Key)][reference.Code(a.Value.AsString())] = true
			}
		}

		page.Row(reference.Code(name), kind, reference.Code(m.Unit), strings.Join(slices.Sorted(maps.Keys(attributes)), ", "), m.Description)
	}

	page.Text("### Values of attributes")
	page.Table("attribute", "values")
	page.Row("`throttle.policy`", "the names of policies; left out if no policy held the request")

	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != "throttle.policy" && key != "throttle.share" {
			page.Row(reference.Code(key), strings.Join(slices.Sorted(maps.Keys(values[key])), ", "))
		}
	}

	page.Row("`throttle.share`", "as `share` in Prometheus")
	page.CompareSection(t, "../..", "metrics")
}

// instrument returns the type of an instrument, and the attributes of its values.
func instrument(t *testing.T, m metricdata.Metrics) (kind string, sets []attribute.Set) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = "up-down counter"
		if data.IsMonotonic {
			kind = "counter"
		}
		return kind, attributesOf(data.DataPoints)

	case metricdata.Gauge[int64]:
		return "gauge", attributesOf(data.DataPoints)
	case metricdata.Gauge[float64]:
		return "gauge", attributesOf(data.DataPoints)
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
		return "histogram", sets
	}

	require.Fail(t, fmt.Sprintf("%s has data of type %T", m.Name, m.Data))
	return "", nil
}

func attributesOf[N int64 | float64](points []metricdata.DataPoint[N]) (sets []attribute.Set) {
	for _, p := range points {
		sets = append(sets, p.Attributes)
	}
	return sets
}
