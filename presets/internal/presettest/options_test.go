package presettest_test

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// What fields of Options may be that are a string, and that return one of a request. A
// preset with another adds it.
var (
	ids        = []string{"Account", "App", "Bot", "Company", "Connection", "Key", "Organization", "Project", "Tenant", "User", "Workspace"}
	otherTexts = []string{"Address", "Host", "ISV"}
	otherKeys  = []string{"Caller", "Channel", "Deployment", "Endpoint", "Method", "Model"}
)

// TestOptions: an id is a string in all presets, and Caller says as many as there are.
func TestOptions(t *testing.T) {
	text, key := reflect.TypeFor[string](), reflect.TypeFor[func(*http.Request) string]()
	for _, p := range tables {
		var results []reflect.Type
		for _, field := range reflect.VisibleFields(p.options) {
			name := p.name + ".Options." + field.Name
			switch {
			case slices.Contains(ids, field.Name):
				require.Equal(t, text, field.Type, name)
				results = append(results, text)
			case field.IsExported() && field.Type == text:
				require.Contains(t, otherTexts, field.Name, name+": is it an id?")
			case field.IsExported() && field.Type == key:
				require.Contains(t, otherKeys, field.Name, name+": is it an id?")
			}
		}
		caller, ok := p.options.FieldByName("Caller")
		require.Equal(t, len(results) > 0, ok, "%s.Options.Caller", p.name)
		if ok {
			want := reflect.FuncOf([]reflect.Type{reflect.TypeFor[*http.Request]()}, results, false)
			require.Equal(t, want, caller.Type, "%s.Options.Caller", p.name)
		}
		_, ok = p.options.FieldByName("Host")
		require.True(t, ok, "%s.Options.Host", p.name)
	}
}

// TestIDs: each id, and the address, splits the budgets of some row, and Caller says the
// same as the strings, in their order.
func TestIDs(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.example.com/a/b/c", nil)
	require.NoError(t, err)
	keysOf := func(rows []throttle.Policy) (keys []string) {
		for _, row := range rows {
			if row.Key != nil {
				keys = append(keys, row.Key(r))
			}
		}
		return keys
	}
	for _, p := range tables {
		told, results := make(map[string]reflect.Value), []reflect.Value{}
		for _, field := range reflect.VisibleFields(p.options) {
			if field.Name != "Address" && !slices.Contains(ids, field.Name) {
				continue
			}
			name := reflect.ValueOf("the " + field.Name)
			one := map[string]reflect.Value{field.Name: name}
			require.NotEqual(t, keysOf(p.zero), keysOf(p.with(one)), "%s.Options.%s", p.name, field.Name)
			if field.Name != "Address" {
				told[field.Name], results = name, append(results, name)
			}
		}
		if len(results) > 0 {
			caller, _ := p.options.FieldByName("Caller")
			says := reflect.MakeFunc(caller.Type, func([]reflect.Value) []reflect.Value { return results })
			require.Equal(t, keysOf(p.with(told)), keysOf(p.with(map[string]reflect.Value{"Caller": says})), p.name)
			told["Caller"] = reflect.MakeFunc(caller.Type, func([]reflect.Value) []reflect.Value {
				return slices.Repeat([]reflect.Value{reflect.ValueOf("")}, len(results))
			})
			require.Equal(t, keysOf(p.zero), keysOf(p.with(told)), "%s: Caller replaces the strings", p.name)
		}
	}
}

// TestHost: a Host replaces the host of every row, and nothing else.
func TestHost(t *testing.T) {
	const fake = "127.0.0.1:8080"
	for _, p := range tables {
		rows := p.with(map[string]reflect.Value{"Host": reflect.ValueOf(fake)})
		require.Len(t, rows, len(p.zero), p.name)
		for i, row := range rows {
			method, url, ok := strings.Cut(row.Match, " ")
			if !ok {
				method, url = "", row.Match
			}
			host, path, _ := strings.Cut(url, "/")
			require.Equal(t, fake, host, "%s: %s", row.Name, row.Match)
			require.True(t, strings.HasPrefix(p.zero[i].Match, method), row.Name)
			require.True(t, strings.HasSuffix(p.zero[i].Match, "/"+path), "%s: %s", row.Name, row.Match)
			require.Equal(t, p.zero[i].Name, row.Name)
			require.Equal(t, p.zero[i].Limit, row.Limit)
		}
	}
}

// TestTransportsCountForThemselves: answers of 503 that one transport got are not in a row with
// those of another.
func TestTransportsCountForThemselves(t *testing.T) {
	outages := 0
	for _, preset := range tables {
		one, other, first := preset.with(nil), preset.with(nil), preset.with(nil)
		for i := range one {
			if one[i].Answer == nil {
				continue
			}
			away := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody, Request: presettest.Request(t, "GET https://"+preset.name+".test/")}
			if first[i].Answer(away).Close > 0 {
				continue // it believes a single one
			}
			for range tablerow.OutageAnswers - 1 {
				one[i].Answer(away)
			}
			require.Zero(t, other[i].Answer(away).Close, "%s", one[i].Name)
			if one[i].Answer(away).Close > 0 {
				outages++
			}
		}
	}
	require.Greater(t, outages, 8, "premise: many presets know an outage")
}
