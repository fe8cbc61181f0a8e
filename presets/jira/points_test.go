package jira_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/jira"
)

func TestPoints(t *testing.T) {
	for request, want := range map[string]int{
		"GET " + site + "issue/ABC-1":                         2,
		"HEAD " + site + "issue/ABC-1":                        2,
		"GET " + site + "search/jql?maxResults=100":           101,
		"GET " + site + "search/jql?maxResults=-3":            2,
		"GET " + site + "search/jql?maxResults=999999999":     10_001,
		"GET " + site + "user/search?maxResults=50":           101,
		"POST " + site + "issue":                              1,
		"DELETE " + site + "issue/ABC-1":                      1,
		"PUT " + site + "issue/ABC-1/assignee?maxResults=100": 1,
	} {
		costs := presettest.Costs(t, jira.Policies(jira.Options{}), presettest.Request(t, request, nil))
		require.Equal(t, want, costs["jira-quota"], request)
	}
	little := jira.Policies(jira.Options{Quota: 40, Points: func(*http.Request) int { return 41 }})
	require.Equal(t, 40, presettest.Costs(t, little, presettest.Request(t, write, nil))["jira-quota"])
}

func TestPointsOfAnswers(t *testing.T) {
	json := header{"Content-Type": "application/json;charset=UTF-8"}
	many := site + "search/jql?maxResults=50"
	presettest.Run(t, jira.Policies(jira.Options{}), []presettest.Case{
		{Name: "two", Request: many, Header: json, Answers: `{"issues":[{"id":"1"},{"id":"2"}],"isLast":true}`, Costs: map[string]int{"jira-quota": 3}},
		{Name: "two, without a length", Request: many, Header: json, Chunked: true, Answers: `{"issues":[{"id":"1"},{"id":"2"}]}`, Costs: map[string]int{"jira-quota": 3}},
		{Name: "none", Request: many, Header: json, Answers: `{"startAt":0,"issues":[]}`, Costs: map[string]int{"jira-quota": 1}},
		{Name: "values", Request: site + "project/search", Header: json, Answers: `{"values":[1,2,3]}`, Costs: map[string]int{"jira-quota": 4}},
		{Name: "users", Request: site + "users/search", Header: json, Answers: `[{"a":1},{"a":2}]`, Costs: map[string]int{"jira-quota": 5}},
		{Name: "one", Request: site + "issue/ABC-1", Header: json, Answers: `{"id":"1","fields":{"issues":[1,2]}}`},
		{Name: "long", Request: many, Header: json, Answers: `{"issues":["` + strings.Repeat("x", 64<<10) + `"]}`},
		{Name: "cut off", Request: many, Header: json, Answers: `{"issues":[1,`},
		{Name: "neither page nor list", Request: many, Header: json, Answers: `"two"`},
		{Name: "no JSON", Request: many, Header: header{"Content-Type": "text/html"}, Answers: `[1]`},
		{Name: "a failure", Request: many, Status: 400, Header: json, Answers: `{"errorMessages":["no"]}`},
		{Name: "a write", Request: "POST " + site + "search", Header: json, Answers: `{"issues":[1,2,3]}`},
	})
}

// A giant is an answer whose body must not be read.
type giant struct{ *testing.T }

func (g giant) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
		Body: g, ContentLength: 1 << 30, Request: r,
	}, nil
}

func (g giant) Read([]byte) (int, error) {
	g.Error("the body was read")
	return 0, io.EOF
}

func (giant) Close() error { return nil }

func TestLongAnswersAreLeftAlone(t *testing.T) {
	transport, err := throttle.New(throttle.Config{
		Store: memstore.New(), Policies: jira.Policies(jira.Options{}), Base: giant{t},
	})
	require.NoError(t, err)
	resp, err := transport.RoundTrip(presettest.Request(t, site+"search/jql", nil))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestStreamsAreLeftAlone(t *testing.T) {
	r := presettest.Request(t, site+"attachment/content/10000", nil)
	read := presettest.LookedAt(t, jira.Policies(jira.Options{}), r, 200, header{"Content-Type": "application/octet-stream"}, "PK")
	require.Zero(t, read)
}

// TestSequencesAreNotHeldUp: of a stream of values only the first is read to its
// end.
func TestSequencesAreNotHeldUp(t *testing.T) {
	const first = `{"issues":[]}`
	r := presettest.Request(t, site+"events", nil)
	read := presettest.LookedAt(t, jira.Policies(jira.Options{}), r, 200, header{"Content-Type": "application/json"}, first)
	require.Equal(t, len(first), read)
}
