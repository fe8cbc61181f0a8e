package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gitlabapi "gitlab.com/gitlab-org/api/client-go/v2"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/gitlab"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeGitLab(store throttle.Store, base http.RoundTripper) (*gitlabapi.Client, error) {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: gitlab.Policies(gitlab.Options{}),
		Base:     base, // leave it out in a program
	}))
	return gitlabapi.NewClient("glpat-token",
		gitlabapi.WithHTTPClient(retry.NewClient(transport).StandardClient()),
		gitlabapi.WithoutRetries(),
		gitlabapi.WithCustomLimiter(noLimiter{}), // the SDK's own keeps each program at two thirds of the limit
	)
}

// A noLimiter lets every request through: throttle holds it below.
type noLimiter struct{}

func (noLimiter) Wait(context.Context) error { return nil }

// gitlabPlatform counts new notes, and all else, by the minute.
func gitlabPlatform() platform {
	const notes = "/api/v4/projects/42/issues/1/notes"
	later := func(_ *call, left time.Duration) reply {
		return reply{429, map[string]string{"Content-Type": "text/plain", "Retry-After": seconds(left), "RateLimit-Name": "throttle_authenticated_api"}, "Retry later\n"}
	}
	tooMany := func(*call, time.Duration) reply {
		return reply{status: 429, body: `{"message":{"error":"This endpoint has been requested too many times. Try again later."}}`}
	}
	return platform{
		limits: func(c *call) []limit {
			all := []limit{{budget: "user", n: 2000, per: time.Minute, cost: 1}}
			if c.URL.Path == notes {
				all = append(all, limit{budget: "notes", n: 60, per: time.Minute, cost: 1})
			}
			return all
		},
		scopes: func(c *call) []string { return []string{"user", c.URL.Path} },
		refusals: []refusal{
			{name: "the user", closes: always("user"), lasts: 20 * time.Second, reply: later},
			{name: "an endpoint", closes: func(c *call) string { return c.URL.Path }, lasts: time.Minute, reply: tooMany},
		},
		answer: func(c *call) reply {
			var note struct{ Body string }
			if c.Header.Get("Private-Token") != "glpat-token" || !strings.HasPrefix(c.URL.Path, "/api/v4/") || json.Unmarshal(c.body, &note) != nil {
				return reply{status: 401, body: `{"message":"401 Unauthorized"}`}
			}
			c.do(note.Body)
			return reply{201, map[string]string{"RateLimit-Limit": "2000"}, fmt.Sprintf(`{"id":1,"body":%q}`, note.Body)}
		},
	}
}

func TestGitLab(t *testing.T) {
	play(t, gitlabPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() *gitlabapi.Client {
			client, err := recipeGitLab(store, u.base())
			require.NoError(t, err)
			return client
		})
		comment := func(w, i int) error {
			text := fmt.Sprint("note ", i)
			note, _, err := apps[w%programs].Notes.CreateIssueNote(42, 1, &gitlabapi.CreateIssueNoteOptions{Body: gitlabapi.Ptr(text)})
			if err == nil {
				require.Equal(t, text, note.Body)
			}
			return err
		}
		u.calls(0, 181, 24, comment)
		u.requireUsed("notes", 3*time.Minute)

		u.refuse(60)
		u.calls(181, 180, 24, comment)
		for i := range 361 {
			u.requireOnce(fmt.Sprint("note ", i))
		}
	})
}
