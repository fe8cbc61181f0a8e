package presettest_test

import (
	"cmp"
	"io"
	"math"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/store"
)

// mostAllocations bounds what a call of any preset allocates beside its base, with an answer in JSON:
// the attempt, keys of several values, and the look into the body.
const mostAllocations = 11.0

// moreAllocations are those of presets that take the body or the path of a request apart, or whose
// answers settle a cost.
var moreAllocations = map[string]float64{"jira": 15, "anthropic": 28, "shopify": 12}

// TestCallsCostLittleMemory: a call that a preset holds allocates little, whatever the number of
// rows that look at the answer.
func TestCallsCostLittleMemory(t *testing.T) {
	soak.WithoutRace(t)
	const answer = `{"errcode":0,"errmsg":"ok","result":{"dept_id":1,"name":"x"},"request_id":"15s4ab8ca3cdz"}`
	fields := http.Header{"Content-Type": {"application/json;charset=UTF-8"}}
	base := answering(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: fields, Request: r,
			Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})
	counted := make(map[string]bool)
	for _, preset := range tables {
		rows := withoutWaits(preset)
		client, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: rows, Base: base})
		require.NoError(t, err)
		for _, row := range rows {
			r := presettest.Request(t, requestOf(row.Match))
			if len(client.Explain(r)) == 0 {
				continue // the pattern wants more than its names say
			}
			counted[preset.name] = true
			call := func(to http.RoundTripper) func() {
				return func() {
					resp, err := to.RoundTrip(r)
					require.NoError(t, err)
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}

			// The runtime counts what the whole process allocates, so other work can only add: the least of some runs is the call's own.
			least := math.Inf(1)
			for range 3 {
				least = min(least, testing.AllocsPerRun(20, call(client))-testing.AllocsPerRun(20, call(base)))
			}
			t.Logf("%s: %s %s: %v", row.Name, r.Method, r.URL, least)
			most := cmp.Or(moreAllocations[preset.name], mostAllocations)
			assert.LessOrEqual(t, least, most+soak.AllocsOf32Bits, "%s: %s %s", row.Name, r.Method, r.URL)
		}
	}
	require.GreaterOrEqual(t, len(counted), len(tables)-2, "premise: calls of nearly all presets are counted")
}

// TestModelsLookAtBodiesInLittleMemory: the rows of a language model read a request's body some eight times, for the model and for what the
// request reserves. The walks use the same memory; what is allocated for each is what GetBody of net/http makes, twice.
func TestModelsLookAtBodiesInLittleMemory(t *testing.T) {
	soak.WithoutRace(t)
	const body = `{"max_tokens":100,"messages":[{"role":"user","content":"hello"}],"model":"m"}`
	const answer = `{"id":"1","usage":{"input_tokens":12,"output_tokens":5,"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}`
	base := answering(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
		}, nil
	})

	for _, preset := range tables {
		if !slices.Contains([]string{"anthropic", "azureopenai", "dashscope", "deepseek", "kimi", "openai", "zhipu"}, preset.name) {
			continue
		}
		client, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: withoutWaits(preset), Base: base})
		require.NoError(t, err)
		for _, row := range preset.with(nil) {
			r := presettest.Request(t, requestOf(row.Match), body)
			r.Header.Set("Content-Type", "application/json")
			looks, getBody := 0, r.GetBody
			r.GetBody = func() (io.ReadCloser, error) { looks++; return getBody() }

			// Other work of the process adds to both.
			const runs, calls = 3, 100
			allocations, bytes := uint64(math.MaxUint64), uint64(math.MaxUint64)
			for range runs {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range calls {
					resp, err := client.RoundTrip(r)
					require.NoError(t, err)
					_ = resp.Body.Close()
				}
				runtime.ReadMemStats(&after)
				allocations, bytes = min(allocations, (after.Mallocs-before.Mallocs)/calls), min(bytes, (after.TotalAlloc-before.TotalAlloc)/calls)
			}

			t.Logf("%s: %d looks, %d allocations, %d bytes", row.Name, looks/calls/runs, allocations, bytes)
			assert.LessOrEqual(t, allocations, uint64(90), row.Name)
			assert.LessOrEqual(t, bytes, uint64(10<<10), row.Name)
		}
	}
}

// withoutWaits returns the rows of a preset, which hold nobody.
func withoutWaits(preset table) []throttle.Policy {
	rows := preset.with(nil)
	for i := range rows {
		if rows[i].Limit.Kind() != store.KindUnlimited {
			rows[i].Limit = throttle.PerSecond(plenty)
		}
	}
	return rows
}

// plenty is more than a call of any preset costs.
const plenty = 1 << 30

// answering is a base.
type answering func(*http.Request) (*http.Response, error)

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var wildcard = regexp.MustCompile(`\{[^}]*\}|\*`)

// requestOf returns a request that a pattern matches: its method and its URL.
func requestOf(pattern string) string {
	method, target, ok := strings.Cut(pattern, " ")
	if !ok {
		method, target = http.MethodGet, pattern
	}
	return method + " https://" + wildcard.ReplaceAllString(target, "a")
}
