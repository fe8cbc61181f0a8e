package promql

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v2"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/memstore"
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

// table has a policy of each form that has metrics of its own.
var table = []throttle.Policy{
	{Name: "calls", Match: "/", Limit: throttle.PerSecond(2)},
	{Name: "trial", Match: "/", Limit: throttle.SlidingWindow(1, time.Minute), Shadow: true},
	{Name: "apps", Match: "/", Limit: throttle.PerSecond(100), Key: throttle.Host},
}

// The rules of alerts.yaml.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Expr        string
			Annotations map[string]string
		}
	}
}

// heading finds the headings of the runbooks.
var heading = regexp.MustCompile(`(?m)^## (Throttle\w+)$`)

// maxRunbook is how many words a runbook has, commands left out: it is read at three in the morning.
const maxRunbook = 120

// TestAlerts: each expression can be parsed, and asks only for metrics, labels and values of
// labels that exist. Each alert has a runbook in docs/run/alerts.md, to which its runbook_url leads, and a
// row in that page's table. Each runbook has an alert, all its parts, and few words.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../alerts.yaml")
	require.NoError(t, err)
	var r rules
	require.NoError(t, yaml.Unmarshal(text, &r))
	runbooks, err := os.ReadFile("../../../docs/run/alerts.md")
	require.NoError(t, err)
	require.Len(t, r.Groups, 1)

	var alerts, sections []string
	for _, rule := range r.Groups[0].Rules {
		checkExpression(t, rule.Alert, rule.Expr)
		require.NotEmpty(t, rule.Annotations["summary"])
		require.Contains(t, string(runbooks), "| [`"+rule.Alert+"`](#"+strings.ToLower(rule.Alert)+") | ")
		require.Equal(t, "https://github.com/fleetthrottle/throttle/blob/main/docs/run/alerts.md#"+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
		alerts = append(alerts, rule.Alert)
	}

	for _, m := range heading.FindAllStringSubmatch(string(runbooks), -1) {
		sections = append(sections, m[1])
	}
	require.ElementsMatch(t, alerts, sections, "each alert has one runbook, and each runbook an alert")

	code := regexp.MustCompile("(?s)```.*?```")
	for i, text := range heading.Split(string(runbooks), -1)[1:] {
		text, _, _ := strings.Cut(text, "\n## ") // runbooks without an alert come last
		for _, part := range []string{"**Means**", "**Hurt**", "**Look at**", "**Do**", "**Don't**"} {
			require.Equal(t, 1, strings.Count(text, part), "%s: %s", sections[i], part)
		}
		require.LessOrEqual(t, len(strings.Fields(code.ReplaceAllString(text, ""))), maxRunbook, sections[i])
	}
}

// checkExpression fails if an expression asks for anything that is not there.
func checkExpression(t *testing.T, what, text string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	require.NoError(t, err, what)
	known := exposed(t)
	selectors := 0
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		labels := known[v.Name]
		require.NotNil(t, labels, "%s: no metric %s", what, v.Name)
		for _, m := range v.LabelMatchers {
			if m.Name == "__name__" {
				continue
			}
			found := false
			for value := range labels[m.Name] {
				found = found || m.Matches(value)
			}
			require.True(t, found, "%s: no series of %s has %v", what, v.Name, m)
		}
		return nil
	})
	require.Positive(t, selectors, what)
}

// exposed returns what is exposed: by metric and label, the values. Those of histograms
// have their suffixes.
func exposed(t *testing.T) map[string]map[string]map[string]bool {
	t.Helper()
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: table}))
	r := prometheus.NewPedanticRegistry()
	m := promthrottle.New()
	m.Follow(transport)
	r.MustRegister(m, promthrottle.Budgets(transport))
	families, err := r.Gather()
	require.NoError(t, err)
	all := make(map[string]map[string]map[string]bool)
	for _, f := range families {
		labels := make(map[string]map[string]bool)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if labels[l.GetName()] == nil {
					labels[l.GetName()] = make(map[string]bool)
				}
				labels[l.GetName()][l.GetValue()] = true
			}
		}
		all[f.GetName()] = labels
		if strings.HasSuffix(f.GetName(), "_seconds") {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[f.GetName()+suffix] = labels
			}
		}
	}
	return all
}

// TestShadowPage: the metrics and the alert that docs/run/change.md names exist.
func TestShadowPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/run/change.md")
	require.NoError(t, err)
	alerts, err := os.ReadFile("../alerts.yaml")
	require.NoError(t, err)
	known := exposed(t)
	names := regexp.MustCompile("`(throttle_\\w+)|`(Throttle\\w+)`").FindAllStringSubmatch(string(page), -1)
	require.Len(t, names, 4)
	for _, name := range names {
		if name[2] != "" {
			require.Contains(t, string(alerts), "alert: "+name[2])
			continue
		}
		require.Contains(t, known, name[1])
	}
}
