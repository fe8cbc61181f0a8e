package policyfile_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
)

// catalogFiles returns all files of the catalog.
func catalogFiles(t testing.TB) (all []policyfile.CatalogFile) {
	t.Helper()
	files, err := filepath.Glob("catalog/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		f, err := policyfile.ReadCatalog(strings.TrimSuffix(filepath.Base(file), ".yaml"), text)
		require.NoError(t, err)
		all = append(all, f)
	}
	return all
}

var (
	answerSource = regexp.MustCompile(`^(?:official|observed), 20\d\d-\d\d: https://\S+$`)
	rowSource    = regexp.MustCompile(`\b(?:official|observed|inferred|common use)\b.*\b20\d\d-\d\d\b`)
	sourceLink   = regexp.MustCompile(`\]\[(\d+)\]`)
)

// TestCatalog: each file of the catalog is a preset that passes its tests. Each row has a source
// and says what it counts and what closes it, each link of a row has an address, and each row that
// can be closed has a test that closes it.
func TestCatalog(t *testing.T) {
	var names []string
	for _, f := range catalogFiles(t) {
		names = append(names, f.Name)
		t.Run(f.Name, func(t *testing.T) {
			require.NoError(t, f.File.Check())
			require.Regexp(t, `^20\d\d-\d\d$`, f.Date)
			require.Len(t, f.Rows, len(f.File.Policies))

			closed := make(map[string]bool)
			for i, test := range f.File.Tests {
				for name, a := range test.Closes {
					closed[name] = closed[name] || a.Close > 0
				}
				if f.Tests[i] != "" {
					require.Regexp(t, answerSource, f.Tests[i], test.Name)
				}
			}
			for i, row := range f.Rows {
				p := f.File.Policies[i]
				require.True(t, strings.HasPrefix(p.Name, f.Name+"-"), p.Name)
				require.NotEmpty(t, row.Counted, p.Name)
				require.NotEmpty(t, row.Closed, p.Name)
				require.Regexp(t, rowSource, row.Source, p.Name)
				for _, link := range sourceLink.FindAllStringSubmatch(row.Source, -1) {
					n, err := strconv.Atoi(link[1])
					require.NoError(t, err)
					require.LessOrEqual(t, n, len(f.Sources), "%s: the link [%d] has no address", p.Name, n)
				}
				if !strings.HasPrefix(row.Closed, "nothing") && !strings.HasPrefix(row.Closed, "as `") {
					require.True(t, closed[p.Name], "no test closes %s", p.Name)
				}
			}
		})
	}
	require.Equal(t, names, policyfile.CatalogPresets(), "a file that cannot be read is not in the catalog")
	require.Subset(t, policyfile.Presets(), names)
}

// TestCatalogOptions: an id splits budgets, Caller says the same as the string, a host takes the place of
// every host, plans and numbers change limits, and what a preset does not have is refused.
func TestCatalogOptions(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/a/b/c", nil)
	require.NoError(t, err)
	for _, f := range catalogFiles(t) {
		t.Run(f.Name, func(t *testing.T) {
			rows := func(o policyfile.PresetOptions) []throttle.Policy {
				all, err := policyfile.Preset(f.Name, o)
				require.NoError(t, err)
				return all
			}
			keys := func(o policyfile.PresetOptions) (all []string) {
				for _, p := range rows(o) {
					if p.Key != nil {
						all = append(all, p.Key(r))
					}
				}
				return all
			}

			require.Equal(t, f.Account != "", keys(policyfile.PresetOptions{}) != nil)
			if f.Account != "" {
				named := keys(policyfile.PresetOptions{Account: "a"})
				require.NotEqual(t, keys(policyfile.PresetOptions{}), named)
				says := func(id string) func(*http.Request) string { return func(*http.Request) string { return id } }
				require.Equal(t, named, keys(policyfile.PresetOptions{Account: "b", Caller: says("a")}))
				require.Equal(t, keys(policyfile.PresetOptions{}), keys(policyfile.PresetOptions{Account: "b", Caller: says("")}))
			}
			if f.Address {
				require.NotEqual(t, keys(policyfile.PresetOptions{}), keys(policyfile.PresetOptions{Address: "a"}))
			}

			zero := rows(policyfile.PresetOptions{})
			for i, p := range rows(policyfile.PresetOptions{Host: "127.0.0.1:8080"}) {
				require.Equal(t, strings.Replace(zero[i].Match, f.Host, "127.0.0.1:8080", 1), p.Match)
				require.NotEqual(t, zero[i].Match, p.Match)
				require.Equal(t, zero[i].Limit, p.Limit)
			}
			for _, plan := range f.Plans {
				require.Equal(t, plan != f.Plans[0], limits(zero) != limits(rows(policyfile.PresetOptions{Plan: plan})), plan)
			}
			for _, n := range f.Numbers {
				all := rows(policyfile.PresetOptions{Numbers: map[string]int{n.Name: 7}})
				require.NotEqual(t, limits(zero), limits(all), n.Name)
			}

			_, err := policyfile.Preset(f.Name, policyfile.PresetOptions{Plan: "gold", Numbers: map[string]int{"perday": 1}})
			require.ErrorContains(t, err, "lan")
			require.ErrorContains(t, err, "perday")
		})
	}
}

// limits lists the limits of rows.
func limits(rows []throttle.Policy) string {
	var all strings.Builder
	for _, p := range rows {
		fmt.Fprintln(&all, p.Name, p.Limit)
	}
	return all.String()
}

// TestCatalogObeysRetryAfter: whatever else a recorded answer says, with 429 and a Retry-After it closes some
// row for at least so long, unless it is certainly no refusal.
func TestCatalogObeysRetryAfter(t *testing.T) {
	const day = 24 * time.Hour // as long as a row can be closed
	for _, f := range catalogFiles(t) {
		for _, test := range f.File.Tests {
			resp := test.Response()
			if resp == nil {
				continue
			}
			resp.StatusCode = http.StatusTooManyRequests
			resp.Header.Set("Retry-After", strconv.Itoa(int(day.Seconds())))
			longest, denied := time.Duration(0), false
			transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: f.File.Policies}))
			for _, c := range transport.Explain(resp.Request) {
				i := slices.IndexFunc(f.File.Policies, func(p throttle.Policy) bool { return p.Name == c.Budget.Policy })
				a := f.File.Policies[i].Answer(resp)
				longest, denied = max(longest, a.Close), denied || a.Verdict == throttle.VerdictNotRefused
			}
			assert.True(t, denied || longest == throttle.MaxPenalty, "%s: %s: %v", f.Name, test.Name, longest)
		}
	}
}

// TestCatalogClosesOneRow: a plain 429 with a Retry-After closes one row of those that a request meets, and no
// other one.
func TestCatalogClosesOneRow(t *testing.T) {
	for _, f := range catalogFiles(t) {
		for _, test := range f.File.Tests {
			test.Answer = &policyfile.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"77"}}}
			transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: f.File.Policies}))
			closed := 0
			for _, c := range transport.Explain(test.Request()) {
				i := slices.IndexFunc(f.File.Policies, func(p throttle.Policy) bool { return p.Name == c.Budget.Policy })
				if d := f.File.Policies[i].Answer(test.Response()).Close; d > 0 {
					require.Equal(t, 77*time.Second, d, c.Budget.Policy)
					closed++
				}
			}
			require.Equal(t, 1, closed, "%s: %s", f.Name, test.Name)
		}
	}
}

// TestPresetErrors: what a preset of the catalog does not have is refused, all at once.
func TestPresetErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		o    policyfile.PresetOptions
		says []string
	}{
		{"edgr", policyfile.PresetOptions{}, []string{`the catalog has no preset "edgr"`, `did you mean "edgar"?`}},
		{"github", policyfile.PresetOptions{}, []string{`the catalog has no preset "github"`}},
		{"edgar", policyfile.PresetOptions{Plan: "pro", Numbers: map[string]int{"per-second": 5}}, []string{"preset edgar: ", "it has no Plan", `it has no number "per-second"`}},
		{"jddj", policyfile.PresetOptions{Address: "x", Numbers: map[string]int{"per-minute": 0}}, []string{"it has no Address", "the number per-minute is 0"}},
		{"zoom", policyfile.PresetOptions{Plan: "businezz"}, []string{`it has no plan "businezz" (did you mean "business"?)`}},
	} {
		rows, err := policyfile.Preset(c.name, c.o)
		require.Nil(t, rows)
		for _, text := range c.says {
			require.ErrorContains(t, err, text)
		}
	}
}

// TestCatalogInFiles: a file names a preset of the catalog as it names the others, with the same
// options as Go, and its mistakes have their places.
func TestCatalogInFiles(t *testing.T) {
	f, err := policyfile.Parse("p.yaml", []byte("version: 1\npresets:\n  - edgar: {address: office, shadow: yes}\n  - zoom: {plan: pro, light: 25, caller: {account: \"{header.X-Account}\"}}\n  - ncbi\n"))
	require.NoError(t, err)
	edgar, err := policyfile.Preset("edgar", policyfile.PresetOptions{Address: "office"})
	require.NoError(t, err)
	zoom, err := policyfile.Preset("zoom", policyfile.PresetOptions{Plan: "pro", Numbers: map[string]int{"light": 25}})
	require.NoError(t, err)
	ncbi, err := policyfile.Preset("ncbi", policyfile.PresetOptions{})
	require.NoError(t, err)
	require.Equal(t, limits(slices.Concat(edgar, zoom, ncbi)), limits(f.Policies))
	require.True(t, f.Policies[0].Shadow)
	require.False(t, f.Policies[len(edgar)].Shadow)
	require.Equal(t, 4, f.Line("zoom-light"))

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://data.sec.gov/", nil)
	require.NoError(t, err)
	r.Header.Set("X-Account", "acme")
	require.Equal(t, "office", f.Policies[1].Key(r))
	require.Equal(t, "acme", f.Policies[len(edgar)].Key(r))

	for text, says := range map[string]string{
		"edgar: {plan: pro}":                 `3:13: preset edgar has no field "plan"`,
		"zoom: {plan: gold}":                 `3:18: "gold" is unknown here; one of free, pro, business is expected`,
		"zoom: {light: 0}":                   `3:19: "0" is not a whole number from 1 on`,
		"edgr":                               `3:5: a preset is unknown: "edgr" (did you mean "edgar"?)`,
		"edgar: {host: 'https://x'}":         `3:12: a pattern has no scheme`,
		"edgar: {host: ''}":                  `the text is empty`,
		"zoom: {light: 9000000000000000000}": `3:11: limit "9000000000000000000/s": `,
	} {
		_, err := policyfile.Parse("p.yaml", []byte("version: 1\npresets:\n  - "+text+"\n"))
		require.ErrorContains(t, err, says, text)
	}
}

// TestCatalogMistakes: a mistake in a file of the catalog has its place.
func TestCatalogMistakes(t *testing.T) {
	good, err := os.ReadFile("catalog/edgar.yaml")
	require.NoError(t, err)
	for old, c := range map[string]struct{ new, says string }{
		"limit: 10/s":            {"limit: 10 a second", `edgar.yaml:`},
		"key: \"{id.account}\"":  {"key: \"{id.company}\"", "{id.company} is unknown"},
		"  title: SEC EDGAR\n":   {"", `the head needs a field "title"`},
		"preset:":                {"x-preset:", `a file of the catalog has a head`},
		"closes: {edgar-address": {"closes: {edgar-addrezz", `there is no policy "edgar-addrezz" (did you mean "edgar-address"?)`},
	} {
		text := strings.Replace(string(good), old, c.new, 1)
		require.NotEqual(t, string(good), text)
		_, err := policyfile.ReadCatalog("edgar", []byte(text))
		require.ErrorContains(t, err, c.says)
	}

	wrong := bytes.Replace(good, []byte("closes: {edgar-address: 10m}"), []byte("closes: {edgar-address: 9m}"), 1)
	f, err := policyfile.ReadCatalog("edgar", wrong)
	require.NoError(t, err)
	require.ErrorContains(t, f.File.Check(), `the answer closes policy "edgar-address" for 10m0s, and not for 9m0s`)
}
