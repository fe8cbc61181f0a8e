package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	githubapi "github.com/google/go-github/v87/github"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeGitHub(store throttle.Store, base http.RoundTripper) (*githubapi.Client, error) {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: github.Policies(github.Options{}),
		Base:     base, // leave it out in a program
	}))
	return githubapi.NewClient(
		githubapi.WithHTTPClient(retry.NewClient(transport).StandardClient()),
		githubapi.WithAuthToken("token"),
		githubapi.WithDisableRateLimitCheck(), // the SDK's check fails a call that throttle would hold
	)
}

// githubPlatform counts points, content and the hour.
func githubPlatform() platform {
	const (
		account   = "account"
		secondary = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	)
	graphql := func(c *call) bool { return c.URL.Path == "/graphql" }
	onlyREST := func(c *call) string {
		if graphql(c) {
			return ""
		}
		return account
	}
	onlyGraphQL := func(c *call) string {
		if graphql(c) {
			return account
		}
		return ""
	}
	return platform{
		http2: true,
		limits: func(c *call) []limit {
			writes := c.Method != http.MethodGet
			switch {
			case graphql(c):
				return []limit{{budget: "graphql points", n: 2000, per: time.Minute, cost: 5}}
			case writes:
				return []limit{
					{budget: "points", n: 900, per: time.Minute, cost: 5},
					{budget: "content minute", n: 80, per: time.Minute, cost: 1},
					{budget: "content hour", n: 500, per: time.Hour, cost: 1},
					{budget: "core", n: 5000, per: time.Hour, kind: opened, cost: 1},
				}
			}
			return []limit{
				{budget: "points", n: 900, per: time.Minute, cost: 1},
				{budget: "core", n: 5000, per: time.Hour, kind: opened, cost: 1},
			}
		},
		scopes: func(c *call) []string {
			if graphql(c) {
				return []string{account}
			}
			return []string{account, "core"}
		},
		refusals: []refusal{
			{
				name: "secondary, 403", closes: onlyREST, lasts: 90 * time.Second,
				reply: func(_ *call, left time.Duration) reply {
					return reply{403, map[string]string{"Retry-After": seconds(left)}, secondary}
				},
			},
			{
				name: "secondary, 429 without a header", closes: onlyREST, lasts: time.Minute,
				reply: func(*call, time.Duration) reply { return reply{429, nil, secondary} },
			},
			{
				name: "GraphQL's 200", closes: onlyGraphQL, lasts: time.Minute,
				reply: func(c *call, _ time.Duration) reply {
					if !graphql(c) {
						return reply{403, nil, secondary}
					}
					return ok(`{"data":null,"errors":[{"message":"You have exceeded a secondary rate limit."}]}`)
				},
			},
			{
				name: "primary", lasts: 10 * time.Minute,
				closes: func(c *call) string {
					if graphql(c) {
						return ""
					}
					return "core"
				},
				reply: func(_ *call, left time.Duration) reply {
					return reply{403, rate(0, time.Now().Add(left)), `{"message":"API rate limit exceeded for user ID 583231."}`}
				},
			},
		},
		answer: func(c *call) reply {
			if graphql(c) {
				var asked struct{ Variables struct{ ID string } }
				if json.Unmarshal(c.body, &asked) != nil {
					return reply{status: 400}
				}
				c.do(asked.Variables.ID)
				return ok(`{"data":{"addStar":{"clientMutationId":"` + asked.Variables.ID + `"}}}`)
			}
			b := c.u.budget("core")
			a := reply{200, rate(5000-b.sum, b.opened.Add(time.Hour)), `{"id":1,"name":"hello"}`}
			if c.Method == http.MethodPost {
				var comment struct{ Body string }
				if json.Unmarshal(c.body, &comment) != nil {
					return reply{status: 400}
				}
				c.do(comment.Body)
				a.status, a.body = 201, `{"id":1,"body":"`+comment.Body+`"}`
			}
			return a
		},
	}
}

func rate(remaining int, reset time.Time) map[string]string {
	return map[string]string{
		"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": strconv.Itoa(remaining), "X-RateLimit-Used": strconv.Itoa(5000 - remaining),
		"X-RateLimit-Reset": strconv.FormatInt(reset.Unix(), 10), "X-RateLimit-Resource": "core",
	}
}

func TestGitHub(t *testing.T) {
	play(t, githubPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() *githubapi.Client {
			app, err := recipeGitHub(store, u.base())
			require.NoError(t, err)
			return app
		})
		get := func(w, _ int) error {
			repo, _, err := apps[w%programs].Repositories.Get(t.Context(), "octocat", "hello")
			if err == nil {
				require.Equal(t, "hello", repo.GetName())
			}
			return err
		}
		comment := func(w, i int) error {
			text := fmt.Sprint("comment ", i)
			made, _, err := apps[w%programs].Issues.CreateComment(t.Context(), "octocat", "hello", 1, &githubapi.IssueComment{Body: &text})
			if err == nil {
				require.Equal(t, text, made.GetBody())
			}
			return err
		}
		star := func(w, i int) error {
			id := fmt.Sprint("star ", i)
			app := apps[w%programs]
			req, err := app.NewRequest(t.Context(), http.MethodPost, "graphql", map[string]any{
				"query":     "mutation($id: String) { addStar(input: {clientMutationId: $id}) { clientMutationId } }",
				"variables": map[string]string{"id": id},
			})
			if err != nil {
				return err
			}
			var answer struct {
				Data map[string]struct{ ClientMutationID string }
			}
			if _, err = app.Do(req, &answer); err == nil {
				require.Equal(t, id, answer.Data["addStar"].ClientMutationID)
			}
			return err
		}
		u.calls(0, 901, 24, get)
		u.requireUsed("points", time.Minute)

		u.refuse(40)
		u.calls(0, 240, 24, func(w, i int) error {
			switch i % 4 {
			case 0:
				return comment(w, i)
			case 1:
				return star(w, i)
			}
			return get(w, i)
		})
		for i := range 60 {
			u.requireOnce(fmt.Sprint("comment ", 4*i))
			u.requireOnce(fmt.Sprint("star ", 4*i+1))
		}
	})
}

// TestGitHubOwnCheck: what recipeGitHub turns off. An answer that says that nothing is
// left makes the SDK fail the next call, which throttle would have held until the
// reset.
func TestGitHubOwnCheck(t *testing.T) {
	p := githubPlatform()
	p.refusals, p.scopes = nil, func(*call) []string { return nil }
	answer := p.answer
	p.answer = func(c *call) reply {
		a := answer(c)
		if c.u.arrivals == 1 {
			a.header = rate(0, time.Now().Add(10*time.Minute))
		}
		return a
	}
	play(t, p, func(t *testing.T, u *upstream) {
		app, err := recipeGitHub(memstore.New(), u.base())
		require.NoError(t, err)
		begin := time.Now()
		for range 2 {
			_, _, err = app.Repositories.Get(t.Context(), "octocat", "hello")
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, time.Since(begin), 10*time.Minute)
	})
}
