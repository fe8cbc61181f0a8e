package promql

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dashboard is what is looked at of dashboard.json.
type dashboard struct {
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource source
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct {
			Datasource   source
			Expr         string
			LegendFormat string
		}
	}
	Annotations struct {
		List []struct {
			Datasource source
			Expr       string
		}
	}
	Templating struct {
		List []struct {
			Name       string
			Type       string
			Datasource source
			Definition string
			Multi      bool
		}
	}
}

// A source is the data source of a panel.
type source struct{ Type, UID string }

// variables are what Grafana puts in the place of its variables.
var variables = strings.NewReplacer("$policy", ".+", "$__rate_interval", "1m")

// readDashboard returns the dashboard, and all its expressions by what they are for.
func readDashboard(t *testing.T) (d dashboard, expressions map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	expressions = make(map[string]string)
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			expressions[fmt.Sprintf("%s, %d", p.Title, i)] = variables.Replace(target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		expressions["annotation"] = variables.Replace(a.Expr)
	}
	return d, expressions
}

// TestDashboard: each expression can be parsed, and asks only for metrics, labels and values of
// labels that exist; the data source is a variable everywhere; and no two panels overlap.
func TestDashboard(t *testing.T) {
	d, expressions := readDashboard(t)
	shown := ""
	for what, text := range expressions {
		checkExpression(t, what, text)
		shown += text
	}
	for name := range exposed(t) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if name != "throttle_closed_until_timestamp_seconds" { // which is for the alert
			require.Contains(t, shown, name, "no panel shows it")
		}
	}

	variable := source{"prometheus", "${datasource}"}
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		if p.Type == "row" {
			continue
		}
		require.Equal(t, variable, p.Datasource, p.Title)
		require.NotEmpty(t, p.Targets)
		for _, target := range p.Targets {
			require.Equal(t, variable, target.Datasource, p.Title)
			if strings.Contains(target.Expr, "by (policy") {
				require.Contains(t, target.Expr, `policy=~"$policy`, p.Title)
				require.Contains(t, target.LegendFormat, "{{policy}}", p.Title)
			}
		}
	}
	for _, a := range d.Annotations.List {
		require.Equal(t, variable, a.Datasource)
	}
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	policy := d.Templating.List[1]
	require.True(t, policy.Multi)
	require.Equal(t, variable, policy.Datasource)
	require.Equal(t, "label_values(throttle_requests_total, policy)", policy.Definition)
}
