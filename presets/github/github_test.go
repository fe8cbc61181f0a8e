package github_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

type header = presettest.Header

const (
	issues  = "https://api.github.com/repos/octocat/hello/issues"
	search  = "https://api.github.com/search/issues?q=is:open"
	graphql = "POST https://api.github.com/graphql"

	exceeded      = `{"message":"API rate limit exceeded for user ID 583231.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api"}`
	secondary     = `{"documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits","message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	secondaryLong = `{"message":"You have exceeded a secondary rate limit and have been temporarily blocked from content creation. Please retry your request again later."}`
	abuse         = `{"message":"You have triggered an Abuse detection mechanism. Please wait a few minutes before you try again.","documentation_url":"https://developer.github.com/v3/#abuse-rate-limits"}`
	forbidden     = `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest/issues"}`
)

// The bubble of a case begins at the second 946684800. What is cut off the
// seconds of a reset is added.
func counted(resource, remaining string) header {
	return header{
		"x-ratelimit-limit": "5000", "x-ratelimit-remaining": remaining, "x-ratelimit-used": "1",
		"x-ratelimit-reset": "946685700", "x-ratelimit-resource": resource,
	}
}

func and(h header, name, value string) header {
	h[name] = value
	return h
}

func TestRefusals(t *testing.T) {
	none := "github-primary 0 15m1s"
	some := "github-primary 4000 15m1s"
	primary := func(d string) string { return "github-primary " + d }
	rest := func(d string) string { return "github-in-flight " + d + ", github-points " + d }

	presettest.Run(t, github.Policies(github.Options{}), presettest.Case{Request: issues, Status: 403}, []presettest.Case{
		{Name: "primary, 403", Header: counted("core", "0"), Answers: exceeded, Closes: primary("15m1s"), Left: none},
		{Name: "primary, 429", Status: 429, Header: counted("core", "0"), Answers: exceeded, Closes: primary("15m1s"), Left: none},
		{Name: "primary that says when", Status: 429, Answers: exceeded, Header: and(counted("core", "0"), "Retry-After", "7"), Closes: primary("7s"),
			Left: none},
		{Name: "primary of the search", Request: search, Header: counted("search", "0"), Answers: exceeded, Closes: "github-search 15m1s", Left: "github-search 0 15m1s"},
		{Name: "primary of the search of code", Request: "https://api.github.com/search/code?q=x", Header: counted("code_search", "0"), Answers: exceeded,
			Closes: "github-code-search 15m1s", Left: "github-code-search 0 15m1s"},
		{Name: "primary, of one resource", Answers: exceeded, Closes: primary("15m1s"), Left: none,
			Header: header{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "946685700"}},
		{Name: "primary, without its reset", Answers: exceeded, Closes: primary("2m"),
			Header: header{"x-ratelimit-remaining": "0", "retry-after": "120"}},
		{Name: "primary that says nothing", Answers: exceeded, Closes: primary("1m"), Header: header{"x-ratelimit-remaining": "0"}},
		{Name: "primary, with a reset that cannot be read", Status: 429, Answers: exceeded, Header: header{"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, Closes: primary("1m")},
		{Name: "primary of another resource", Header: counted("code_scanning_upload", "0"), Answers: exceeded, Closes: primary("15m1s")},
		{Name: "primary of another resource that says when", Status: 429, Answers: exceeded,
			Header: and(counted("code_scanning_upload", "0"), "retry-after", "120"), Closes: primary("2m")},
		{Name: "secondary, 403", Header: counted("core", "4000"), Answers: secondary, Closes: rest("1m"), Left: some},
		{Name: "secondary, 429", Status: 429, Header: counted("core", "4000"), Answers: secondary, Closes: rest("1m"), Left: some},
		{Name: "secondary that says when", Answers: secondary, Header: and(counted("core", "4000"), "retry-after", "120"), Closes: rest("2m"),
			Left: some},
		{Name: "secondary without a header", Answers: secondary, Closes: rest("1m")},
		{Name: "secondary in other words", Request: "POST " + issues, Answers: secondaryLong, Closes: rest("1m")},
		{Name: "secondary by its earlier name", Header: counted("core", "4800"), Answers: abuse, Closes: rest("1m"), Left: "github-primary 4800 15m1s"},
		{Name: "secondary by its earlier name, 429 that says when", Status: 429, Header: and(counted("core", "4800"), "Retry-After", "90"), Answers: abuse,
			Closes: rest("1m30s"), Left: "github-primary 4800 15m1s"},
		{Name: "secondary by its earlier name, GraphQL", Request: graphql, Body: `{"query":"query { viewer { login } }"}`, Header: header{"Content-Type": "application/json"},
			Answers: `{"data":null,"errors":[` + abuse + `]}`, Closes: "github-in-flight 1m, github-graphql-points 1m", Status: 200},
		{Name: "secondary without a message", Header: and(counted("core", "4000"), "retry-after", "30"), Closes: rest("30s"), Left: some},
		{Name: "429 that says nothing", Status: 429, Closes: rest("1m")},
		{Name: "secondary, GraphQL", Request: graphql, Body: `{"query":"query { viewer { login } }"}`, Answers: secondary,
			Closes: "github-in-flight 1m, github-graphql-points 1m"},
		{Name: "secondary, GraphQL, in a success", Request: graphql, Body: `{"query":"query { viewer { login } }"}`,
			Header: header{"Content-Type": "application/json", "Retry-After": "90"}, Answers: secondary,
			Closes: "github-in-flight 1m30s, github-graphql-points 1m30s", Status: 200},
		{Name: "secondary, GraphQL, among the errors of a success", Request: graphql, Body: `{"query":"query { viewer { login } }"}`,
			Header:  header{"Content-Type": "application/json"},
			Answers: `{"data":null,"errors":[{"message":"Not found"},{"message":"You have exceeded a secondary rate limit."}]}`,
			Closes:  "github-in-flight 1m, github-graphql-points 1m", Status: 200},
		{Name: "secondary, GraphQL, a query in part", Request: graphql, Body: `{"query":"query { viewer { login } }"}`,
			Header:  header{"Content-Type": "application/json"},
			Answers: `{"data":{"viewer":null},"errors":[{"message":"You have exceeded a secondary rate limit."}]}`,
			Closes:  "github-in-flight 1m, github-graphql-points 1m", Status: 200},
		{Name: "secondary, GraphQL, a mutation in part", NoRefusal: true, Request: graphql, Body: `{"query":"mutation { a b }"}`,
			Header:  header{"Content-Type": "application/json"},
			Answers: `{"data":{"a":{},"b":null},"errors":[{"message":"You have exceeded a secondary rate limit."}]}`,
			Closes:  "github-in-flight 1m, github-graphql-points 1m", Status: 200},
		{Name: "secondary, an upload", Request: "POST https://uploads.github.com/repos/octocat/hello/releases/1/assets?name=a", Answers: secondary,
			Closes: rest("1m")},
		{Name: "tokens", Request: "POST https://github.com/login/oauth/access_token", Status: 429, Header: header{"Retry-After": "60"},
			Closes: "github-oauth 1m"},
	})
}

func TestNoRefusals(t *testing.T) {
	some := "github-primary 4999 15m1s"
	presettest.Run(t, github.Policies(github.Options{}), presettest.Case{Request: issues}, []presettest.Case{
		{Name: "success", Header: counted("core", "4999"), Answers: "[]", Left: some},
		{Name: "no permission", Status: 403, Header: counted("core", "4999"), Answers: forbidden, Left: some},
		{Name: "no permission, no header", Status: 403, Answers: forbidden},
		{Name: "bad credentials", Status: 401, Header: counted("core", "0"), Answers: `{"message":"Bad credentials"}`},
		{Name: "not found", Status: 404, Header: counted("core", "4999"), Answers: `{"message":"Not Found"}`, Left: some},
		{Name: "another resource", Header: counted("code_scanning_upload", "0"), Answers: "{}"},
		{Name: "an issue about it", Header: counted("core", "4999"), Answers: secondary, Left: some},
		{Name: "an issue about its earlier name", Header: counted("core", "4999"), Answers: abuse, Left: some},
		{Name: "a permission that quotes it", Status: 403, Answers: `{"message":"Forbidden","errors":[{"message":"secondary rate limit"}]}`},
		{Name: "a comment about it, by GraphQL", Request: graphql, Header: header{"Content-Type": "application/json"},
			Answers: `{"data":{"message":"secondary rate limit","errors":[{"message":"secondary rate limit"}]}}`},
		{Name: "another host's refusal", Request: "https://codeload.github.com/octocat/hello/zip/main", Status: 429, Answers: secondary},
		{Name: "the last one, after which nothing is left", Header: counted("core", "0"), Answers: "[]", Left: "github-primary 0 15m1s"},
		{Name: "out of a cache", Header: and(counted("core", "0"), "Age", "60")},
		{Name: "an outage that says when", Status: 503, Header: header{"Retry-After": "60"}},
	})
}

// TestUnchanged: with a token a 304 is free under the primary limit.
func TestUnchanged(t *testing.T) {
	conditional := header{"If-None-Match": `"a"`, "Authorization": "Bearer a"}
	presettest.Run(t, github.Policies(github.Options{}), presettest.Case{Request: issues, Sends: conditional}, []presettest.Case{
		{Name: "free", Status: 304, Costs: "github-primary 0"},
		{Name: "changed", Answers: "[]"},
		{Name: "without a token", Sends: header{"If-None-Match": `"a"`}, Status: 304},
	})
}

// TestHost: an Enterprise Server has the same API in another place.
func TestHost(t *testing.T) {
	policies := github.Policies(github.Options{Host: "github.example.com/api"})
	const rest = "github-primary, github-in-flight, github-points"
	for line, want := range map[string]string{
		"https://github.example.com/api/v3/repos/octocat/hello/issues":      rest,
		"POST https://github.example.com/api/v3/repos/o/h/issues":           rest + ", github-content-minute, github-content-hour",
		"POST https://github.example.com/api/uploads/repos/o/h/releases/1":  rest + ", github-content-minute, github-content-hour",
		"https://github.example.com/api/v3/search/issues?q=x":               "github-search, github-in-flight, github-points",
		"https://github.example.com/api/v3/search/code?q=x":                 "github-code-search, github-in-flight, github-points",
		"POST https://github.example.com/api/graphql":                       "github-primary, github-in-flight, github-graphql-points",
		"POST https://github.example.com/login/oauth/access_token":          "github-oauth",
		"https://github.example.com/octocat/hello":                          "",
		"https://api.github.com/repos/octocat/hello/issues":                 "",
		"https://elsewhere.github.example.com/api/v3/repos/octocat/hello/x": "",
	} {
		require.Equal(t, want, presettest.Rows(t, policies, presettest.Request(t, line)), line)
	}
	primary := func(o github.Options, line string) string {
		return presettest.Budget(t, github.Policies(o), "github-primary", presettest.Request(t, line))
	}
	server := github.Options{Host: "github.example.com/api"}
	require.NotEqual(t, primary(server, "https://github.example.com/api/v3/user"), primary(server, "https://github.example.com/api/v3/scim/v2/Users"))
	require.NotEqual(t, primary(server, "https://github.example.com/api/v3/user"), primary(github.Options{}, "https://api.github.com/user"))
}

// TestHost_WithoutAPath: a fake or a proxy has the paths of github.com, and those of an
// Enterprise Server are known too.
func TestHost_WithoutAPath(t *testing.T) {
	policies := github.Policies(github.Options{Host: "127.0.0.1:8080"})
	for line, want := range map[string]string{
		"http://127.0.0.1:8080/repos/o/h/issues":              "github-primary, github-in-flight, github-points",
		"http://127.0.0.1:8080/api/v3/repos/o/h/issues":       "github-primary, github-in-flight, github-points",
		"POST http://127.0.0.1:8080/graphql":                  "github-primary, github-in-flight, github-graphql-points",
		"POST http://127.0.0.1:8080/api/graphql":              "github-primary, github-in-flight, github-graphql-points",
		"POST http://127.0.0.1:8080/login/oauth/access_token": "github-oauth",
		"https://api.github.com/user":                         "",
	} {
		require.Equal(t, want, presettest.Rows(t, policies, presettest.Request(t, line)), line)
	}
	require.False(t, presettest.Shared(t, policies, "github-primary",
		presettest.Request(t, "http://127.0.0.1:8080/user"), presettest.Request(t, "http://127.0.0.1:8080/scim/v2/Users")))
}

// TestSearchesOfAnEmptyStore: callers who start together, before any answer has told what is left, keep
// to the minute of their resource. The upstream counts it in windows of its own.
func TestSearchesOfAnEmptyStore(t *testing.T) {
	for _, c := range []struct {
		name, request string
		options       github.Options
		perMinute     int
		resource      string
	}{
		{"search", search, github.Options{}, 30, "search"},
		{"search of repositories", "https://api.github.com/search/repositories?q=x", github.Options{}, 30, "search"},
		{"search of code", "https://api.github.com/search/code?q=x", github.Options{}, 10, "code_search"},
		{"without a token", search, github.Options{PerHour: github.Anonymous, Account: "gateway"}, 10, "search"},
		{"of an Enterprise Server", "https://git.example.com/api/v3/search/issues?q=x", github.Options{Host: "git.example.com/api"}, 30, "search"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := &windowed{perMinute: c.perMinute, resource: c.resource}
				transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: github.Policies(c.options), Base: upstream, MaxWait: 50 * time.Second})
				require.NoError(t, err)

				var callers sync.WaitGroup
				for range 40 {
					callers.Go(func() {
						resp, err := transport.RoundTrip(presettest.Request(t, c.request))
						if errors.Is(err, throttle.ErrLimited) {
							return
						}
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
					})
				}
				callers.Wait()

				require.Equal(t, c.perMinute, upstream.granted)
				require.Zero(t, upstream.refused)
			})
		})
	}
}

// TestSearchesOfManyMinutes: callers who wait for the next minutes are not refused there, whenever the
// upstream's minutes begin.
func TestSearchesOfManyMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &windowed{perMinute: 30, resource: "search"}
		transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: github.Policies(github.Options{}), Base: upstream})
		require.NoError(t, err)

		begin := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				resp, err := transport.RoundTrip(presettest.Request(t, search))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			})
		}
		callers.Wait()

		require.Zero(t, upstream.refused)
		require.Less(t, time.Since(begin), 4*time.Minute)
	})
}

// windowed is an upstream that counts a resource by the minute.
type windowed struct {
	perMinute int
	resource  string

	mu               sync.Mutex
	ends             time.Time
	used             int
	granted, refused int
}

// RoundTrip implements [http.RoundTripper].
func (w *windowed) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if now := time.Now(); !now.Before(w.ends) {
		w.ends, w.used = now.Add(time.Minute), 0
	}
	w.used++
	status := http.StatusOK
	if w.used > w.perMinute {
		status = http.StatusForbidden
		w.refused++
	} else {
		w.granted++
	}
	left := max(0, w.perMinute-w.used)
	ends := w.ends
	w.mu.Unlock()

	time.Sleep(200 * time.Millisecond)
	resp := &http.Response{StatusCode: status, Header: make(http.Header), Body: http.NoBody, Request: r}
	for name, value := range map[string]any{"Resource": w.resource, "Limit": w.perMinute, "Remaining": left, "Reset": ends.Unix()} {
		resp.Header.Set("X-RateLimit-"+name, fmt.Sprint(value))
	}
	return resp, nil
}

// TestUploads are requests of REST.
func TestUploads(t *testing.T) {
	policies := github.Policies(github.Options{})
	upload := presettest.Request(t, "POST https://uploads.github.com/repos/octocat/hello/releases/1/assets?name=a")
	require.Equal(t, "github-primary 1, github-in-flight 1, github-points 5, github-content-minute 1, github-content-hour 1",
		presettest.Costs(t, policies, upload))
	for _, row := range []string{"github-primary", "github-points"} {
		require.True(t, presettest.Shared(t, policies, row, presettest.Request(t, issues), upload))
	}
}

// TestAnotherCaller: what is left of another caller's hour says nothing.
func TestAnotherCaller(t *testing.T) {
	said := func(limit, resource string) header {
		return and(counted(resource, "7"), "x-ratelimit-limit", limit)
	}
	seven := "github-primary 7 15m1s"
	presettest.Run(t, github.Policies(github.Options{}), presettest.Case{Request: issues}, []presettest.Case{
		{Name: "without a token", Header: said("60", "core")},
		{Name: "one of a workflow", Header: said("1000", "core"), Left: seven},
		{Name: "one of an enterprise", Header: said("15000", "core"), Left: seven},
		{Name: "nobody's", Header: said("", "core"), Left: seven},
		{Name: "of a search", Request: search, Header: said("30", "search"), Left: "github-search 7 15m1s"},
	})
	presettest.Run(t, github.Policies(github.Options{PerHour: github.Anonymous}), presettest.Case{Request: issues}, []presettest.Case{
		{Name: "with a token", Header: said("5000", "core")},
		{Name: "the same", Header: said("60", "core"), Left: seven},
	})
}

func TestCosts(t *testing.T) {
	policies := github.Policies(github.Options{})
	const (
		read     = "github-primary 1, github-in-flight 1, github-points 1"
		write    = "github-primary 1, github-in-flight 1, github-points 5"
		content  = ", github-content-minute 1, github-content-hour 1"
		query    = "github-primary 1, github-in-flight 1, github-graphql-points 1"
		mutation = "github-primary 1, github-in-flight 1, github-graphql-points 5" + content
	)
	for _, c := range []struct{ request, body, want string }{
		{issues, "", read},
		{"HEAD " + issues, "", read},
		{"OPTIONS " + issues, "", read},
		{"POST " + issues, "{}", write + content},
		{"PUT " + issues, "{}", write + content},
		{"PATCH " + issues, "{}", write},
		{"DELETE " + issues, "", write},
		{graphql, `{"query":"query { viewer { login } }"}`, query},
		{graphql, `{"query":"mutation { addStar(input: {}) { clientMutationId } }"}`, mutation},
		{graphql, `{"query":"` + strings.Repeat(" ", 64<<10) + `"}`, mutation},
		{"POST https://github.com/login/oauth/access_token", "", "github-oauth 1"},
		{"https://github.com/octocat/hello", "", ""},
		{"https://codeload.github.com/octocat/hello/zip/main", "", ""},
	} {
		got := presettest.Costs(t, policies, presettest.Request(t, c.request, c.body))
		require.Equal(t, c.want, got, "%s %.60s", c.request, c.body)
	}
}

// TestAQueryThatCannotBeLookedAt costs as much as a mutation.
func TestAQueryThatCannotBeLookedAt(t *testing.T) {
	r := presettest.Request(t, graphql, `{"query":"query { viewer { login } }"}`)
	r.GetBody = nil
	require.Equal(t, 5, presettest.Cost(t, github.Policies(github.Options{}), "github-graphql-points", r))
}

func TestCreates(t *testing.T) {
	policies := github.Policies(github.Options{
		Creates: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/comments") },
	})
	require.NotContains(t, presettest.Rows(t, policies, presettest.Request(t, "POST "+issues)), "github-content-hour")
	require.Contains(t, presettest.Rows(t, policies, presettest.Request(t, "POST "+issues+"/1/comments")), "github-content-hour")
}

func TestBudgets(t *testing.T) {
	policies := github.Policies(github.Options{Caller: throttle.Header("Account")})
	require.Equal(t, "github-primary Account, github-in-flight Account, github-points Account, github-content-minute Account, github-content-hour Account",
		presettest.Splits(t, policies, "POST "+issues, "Account"))
	require.Equal(t, "github-primary Account, github-in-flight Account, github-graphql-points Account",
		presettest.Splits(t, policies, graphql, "Account"))
	require.Equal(t, "github-primary Authorization, github-in-flight Authorization, github-points Authorization",
		presettest.Splits(t, github.Policies(github.Options{}), issues, "Authorization", "Account"))

	budgets := func(policy string, lines ...string) map[string]bool {
		all := make(map[string]bool)
		for _, line := range lines {
			all[presettest.Budget(t, policies, policy, presettest.Request(t, line))] = true
		}
		return all
	}
	const repository = "https://api.github.com/repos/octocat/hello"
	resources := []string{
		issues, graphql, "POST https://api.github.com/app-manifests/code/conversions", "POST " + repository + "/dependency-graph/snapshots",
		repository + "/dependency-graph/sbom", "POST " + repository + "/code-scanning/sarifs", "POST " + repository + "/actions/runners/registration-token",
		"https://api.github.com/scim/v2/organizations/o/Users",
	}
	require.Len(t, budgets("github-primary", resources...), len(resources), "resources are counted apart")
	require.Len(t, budgets("github-primary", issues, repository+"/contents/dependency-graph/sbom", repository+"/code-scanning/sarifs", "https://api.github.com/repos"), 1, "core")
	require.Len(t, budgets("github-in-flight", issues, graphql, search), 1, "REST and GraphQL together")
}

func TestBodiesAreLeftAlone(t *testing.T) {
	require.Zero(t, presettest.LookedAt(t, github.Policies(github.Options{}), issues, 200, header{"Content-Type": "application/json"}, `{"message":"`))
}
