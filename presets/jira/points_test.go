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
		costs := presettest.Costs(t, jira.Policies(jira.Options{}), presettest.Request(t, request))
		require.Equal(t, want, costs["jira-quota"], request)
	}
	little := jira.Policies(jira.Options{Quota: 40, Points: func(*http.Request) int { return 41 }})
	require.Equal(t, 40, presettest.Costs(t, little, presettest.Request(t, write))["jira-quota"])
}

func TestPointsOfAnswers(t *testing.T) {
	json := header{"Content-Type": "application/json;charset=UTF-8"}
	many := site + "search/jql?maxResults=50"
	presettest.Run(t, jira.Policies(jira.Options{}), presettest.Case{Request: many, Header: json}, []presettest.Case{
		{Name: "two", Answers: `{"issues":[{"id":"1"},{"id":"2"}],"isLast":true}`, Costs: "jira-quota 3"},
		{Name: "two, without a length", Chunked: true, Answers: `{"issues":[{"id":"1"},{"id":"2"}]}`, Costs: "jira-quota 3"},
		{Name: "none", Answers: `{"startAt":0,"issues":[]}`, Costs: "jira-quota 1"},
		{Name: "values", Request: site + "project/search", Answers: `{"values":[1,2,3]}`, Costs: "jira-quota 4"},
		{Name: "users", Request: site + "users/search", Answers: `[{"a":1},{"a":2}]`, Costs: "jira-quota 5"},
		{Name: "one", Request: site + "issue/ABC-1", Answers: `{"id":"1","fields":{"issues":[1,2]}}`},
		{Name: "long", Answers: `{"issues":["` + strings.Repeat("x", 64<<10) + `"]}`},
		{Name: "cut off", Answers: `{"issues":[1,`},
		{Name: "neither page nor list", Answers: `"two"`},
		{Name: "no JSON", Header: header{"Content-Type": "text/html"}, Answers: `[1]`},
		{Name: "a failure", Status: 400, Answers: `{"errorMessages":["no"]}`},
		{Name: "a write", Request: "POST " + site + "search", Answers: `{"issues":[1,2,3]}`},
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
	resp, err := transport.RoundTrip(presettest.Request(t, site+"search/jql"))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

func TestStreamsAreLeftAlone(t *testing.T) {
	require.Zero(t, presettest.LookedAt(t, jira.Policies(jira.Options{}), site+"attachment/content/10000", 200, header{"Content-Type": "application/octet-stream"}, "PK"))
}

// TestSequencesAreNotHeldUp: of a stream of values only the first is read to its
// end.
func TestSequencesAreNotHeldUp(t *testing.T) {
	const first = `{"issues":[]}`
	read := presettest.LookedAt(t, jira.Policies(jira.Options{}), site+"events", 200, header{"Content-Type": "application/json"}, first)
	require.Equal(t, len(first), read)
}
