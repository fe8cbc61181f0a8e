package jira_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
		"GET " + site + "user/%2e%2e/search?maxResults=50":    51,
		"POST " + site + "issue":                              1,
		"DELETE " + site + "issue/ABC-1":                      1,
		"PUT " + site + "issue/ABC-1/assignee?maxResults=100": 1,
	} {
		require.Equal(t, want, presettest.Cost(t, jira.Policies(jira.Options{}), "jira-quota", presettest.Request(t, request)), request)
	}
	little := jira.Policies(jira.Options{Quota: 40, Points: func(*http.Request) int { return 41 }})
	require.Equal(t, 40, presettest.Cost(t, little, "jira-quota", presettest.Request(t, write)))
}

// TestAPITokens: what an app's user does with an API token is under the burst limits alone.
func TestAPITokens(t *testing.T) {
	for authorization, want := range map[string]string{
		"Basic YTpi": "jira-burst-GET", "basic YTpi": "jira-burst-GET", "Bearer eyJ": "jira-quota, jira-burst-GET", "JWT eyJ": "jira-quota, jira-burst-GET", "": "jira-quota, jira-burst-GET",
	} {
		r := presettest.Request(t, site+"search/jql?maxResults=50")
		r.Header.Set("Authorization", authorization)
		require.Equal(t, want, presettest.Rows(t, jira.Policies(jira.Options{}), r), authorization)
	}
	presettest.Run(t, jira.Policies(jira.Options{}), presettest.Case{Request: site + "search/jql", Sends: header{"Authorization": "Basic YTpi"}}, []presettest.Case{
		{Name: "an answer", Header: header{"Content-Type": "application/json"}, Answers: `{"issues":[1,2,3]}`},
	})
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

func TestLongAnswersAreLeftAlone(t *testing.T) {
	long := header{"Content-Type": "application/json", "Content-Length": "1073741824"}
	require.Zero(t, presettest.LookedAt(t, jira.Policies(jira.Options{}), site+"search/jql", 200, long, `{"issues":`))
}

// TestSequencesAreNotHeldUp: of a stream of values only the first is read to its
// end.
func TestSequencesAreNotHeldUp(t *testing.T) {
	const first = `{"issues":[]}`
	read := presettest.LookedAt(t, jira.Policies(jira.Options{}), site+"events", 200, header{"Content-Type": "application/json"}, first)
	require.Equal(t, len(first), read)
}
