package gitlab_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/gitlab"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const (
	issues   = "https://gitlab.com/api/v4/projects/42/issues"
	newIssue = "POST " + issues
	project  = "https://gitlab.com/api/v4/projects/group%2Fproject"
	graphql  = "POST https://gitlab.com/api/graphql"

	tooMany = `{"message":{"error":"This endpoint has been requested too many times. Try again later."}}`
)

var token = presettest.Header{"Private-Token": "glpat-secret"}

func TestRefusals(t *testing.T) {
	text := func(more ...string) presettest.Header {
		h := presettest.JSON(more...)
		h["Content-Type"] = "text/plain"
		return h
	}
	presettest.Run(t, gitlab.Policies(gitlab.Options{}), presettest.Case{Request: issues, Sends: token, Status: 429}, []presettest.Case{
		{Name: "the user", Header: text("Retry-After", "30", "RateLimit-Name", "throttle_authenticated_api"), Answers: "Retry later\n", Closes: "gitlab-user 30s"},
		{Name: "the user, nobody says how long", Header: text(), Answers: "Retry later\n", Closes: "gitlab-user 1m"},
		{Name: "nobody in particular", Sends: presettest.Header{}, Header: text("Retry-After", "30"), Answers: "Retry later\n", Closes: "gitlab-anonymous 30s"},
		{Name: "an endpoint", Header: presettest.JSON(), Answers: tooMany, Closes: "gitlab-endpoint 1m"},
		{Name: "an endpoint, stated", Header: presettest.JSON("Retry-After", "86400"), Answers: tooMany, Closes: "gitlab-endpoint 24h"},
		{Name: "an endpoint, in the other form", Header: presettest.JSON("Retry-After", "5"), Answers: `{"message":"This endpoint has been requested too many times. Try again later."}`, Closes: "gitlab-endpoint 5s"},
		{Name: "another limit than the user's", Header: text("Retry-After", "30", "RateLimit-Name", "throttle_authenticated_packages_api"), Answers: "Retry later\n", Closes: "gitlab-endpoint 30s"},
		{Name: "an endpoint, with fields of the user's limit",
			Header:  presettest.JSON("RateLimit-Name", "throttle_authenticated_api", "RateLimit-Limit", "2000", "RateLimit-Remaining", "1995", "RateLimit-Reset", "946684819"),
			Answers: tooMany, Closes: "gitlab-endpoint 1m", Left: "gitlab-user 1995 20s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, gitlab.Policies(gitlab.Options{}), presettest.Case{Request: issues, Sends: token, Header: presettest.JSON()}, []presettest.Case{
		{Name: "success", Answers: `[{"title":"This endpoint has been requested too many times"}]`},
		{Name: "a comment on it", Answers: `{"message":{"error":"This endpoint has been requested too many times."}}`},
		{Name: "no permission", Status: 403, Answers: `{"message":"403 Forbidden"}`},
		{Name: "no such project", Status: 404, Answers: `{"message":"404 Project Not Found"}`},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "5")},
	})
}

// TestWhatIsLeft: a moment in whole seconds counts with the second that may have been cut off.
func TestWhatIsLeft(t *testing.T) {
	fields := func(name string) presettest.Header {
		return presettest.JSON("RateLimit-Name", name, "RateLimit-Remaining", "7", "RateLimit-Reset", "946684859")
	}
	presettest.Run(t, gitlab.Policies(gitlab.Options{}), presettest.Case{Request: issues, Sends: token, Answers: "[]"}, []presettest.Case{
		{Name: "of a user", Header: fields("throttle_authenticated_api"), Left: "gitlab-user 7 1m"},
		{Name: "of an address", Sends: presettest.Header{}, Header: fields("throttle_unauthenticated_api"), Left: "gitlab-anonymous 7 1m"},
		{Name: "of something else", Header: fields("throttle_authenticated_packages_api")},
		{Name: "of nothing by name", Header: presettest.JSON("RateLimit-Remaining", "7", "RateLimit-Reset", "946684859")},
	})
}

func TestLimits(t *testing.T) {
	require.Contains(t, presettest.Limits(gitlab.Policies(gitlab.Options{PerMinute: 600})), "gitlab-user 600/m, gitlab-anonymous 500/m")
}

func TestCosts(t *testing.T) {
	policies := gitlab.Policies(gitlab.Options{})
	for request, want := range map[string]string{
		issues:                               "",
		newIssue:                             ", gitlab-new-issues 1",
		project:                              ", gitlab-project 1",
		graphql:                              "",
		"https://gitlab.com/api/v4/projects": ", gitlab-projects 1",
		"POST https://gitlab.com/api/v4/projects":                      ", gitlab-new-projects 1",
		"https://gitlab.com/api/v4/groups":                             ", gitlab-groups 1",
		"POST https://gitlab.com/api/v4/groups":                        ", gitlab-new-groups 1",
		"https://gitlab.com/api/v4/groups/gitlab-org":                  ", gitlab-group 1",
		"https://gitlab.com/api/v4/groups/7/projects":                  ", gitlab-group-projects 1",
		"https://gitlab.com/api/v4/users/1":                            ", gitlab-user-lookup 1",
		"https://gitlab.com/api/v4/projects/1/members/all":             ", gitlab-members 1",
		"https://gitlab.com/api/v4/projects/group%2Fproject/members":   ", gitlab-members 1",
		"https://gitlab.com/api/v4/projects/1/members_of":              "",
		"https://gitlab.com/api/v4/search?scope=issues":                ", gitlab-search 1",
		"https://gitlab.com/api/v4/projects/1/search":                  ", gitlab-search 1",
		"POST https://gitlab.com/api/v4/projects/1/issues/2/notes":     ", gitlab-new-notes 1",
		"POST https://gitlab.com/api/v4/projects/1/pipeline":           ", gitlab-new-pipelines 1",
		"https://gitlab.com/api/v4/projects/1/issues?private_token=xx": "",
	} {
		r := presettest.Request(t, request)
		if !strings.Contains(request, "private_token") {
			r.Header.Set("Authorization", "Bearer secret")
		}
		require.Equal(t, "gitlab-user 1, gitlab-address 1, gitlab-endpoint 1"+want, presettest.Costs(t, policies, r), request)
	}
	require.Equal(t, "gitlab-anonymous 1, gitlab-address 1, gitlab-endpoint 1", presettest.Costs(t, policies, presettest.Request(t, issues)))
	require.Equal(t, "gitlab-address 1, gitlab-site 1", presettest.Costs(t, policies, presettest.Request(t, "https://gitlab.com/group/project")))
}

func TestBudgets(t *testing.T) {
	policies := gitlab.Policies(gitlab.Options{Caller: throttle.Header("Authorization")})
	a, b := presettest.Request(t, newIssue), presettest.Request(t, newIssue)
	a.Header.Set("Authorization", "a")
	b.Header.Set("Authorization", "b")
	for row, same := range map[string]bool{"gitlab-user": false, "gitlab-new-issues": false, "gitlab-endpoint": false, "gitlab-address": true} {
		require.Equal(t, same, presettest.Shared(t, policies, row, a, b), row)
	}
	request := func(line string) *http.Request { return presettest.Request(t, line) }
	shared := func(a, b string) bool {
		return presettest.Shared(t, policies, "gitlab-endpoint", request(a), request(b))
	}
	require.True(t, shared(issues, "https://gitlab.com/api/v4/projects/group%2Fproject/issues"), "another project")
	for _, same := range []string{
		"/projects/42/jobs/%2e%2e/issues", "/projects/42/./issues/", "/projects//42/%2E/issues", "/projects/42/%69ssues", "/../v4/projects/a%2F%2e%2e%2Fb/issues",
	} {
		require.True(t, shared(issues, "https://gitlab.com/api/v4"+same), same)
	}
	require.False(t, shared(issues, "https://gitlab.com/api/v4/projects/42/issues/%2e%2e"), "the project, not its issues")
	require.False(t, shared(issues, newIssue), "another method")
	require.False(t, shared(issues, "https://gitlab.com/api/v4/projects/42/jobs"), "another endpoint")

	one, other := gitlab.Policies(gitlab.Options{Address: "a", User: "a"}), gitlab.Policies(gitlab.Options{Address: "b", User: "b"})
	for _, row := range []string{"gitlab-address", "gitlab-anonymous", "gitlab-endpoint"} {
		require.NotEqual(t, presettest.Budget(t, one, row, request(issues)), presettest.Budget(t, other, row, request(issues)), row)
	}
}
