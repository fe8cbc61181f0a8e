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
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
	"google.golang.org/api/sheets/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeGoogle(ctx context.Context, store throttle.Store, base http.RoundTripper, user string, tokens oauth2.TokenSource) (*sheets.Service, error) {
	kind := func(r *http.Request) string { // reads and writes are counted apart
		if throttle.Method(r) == http.MethodGet {
			return "read"
		}
		return "write"
	}
	account := func(*http.Request) string { return user } // an id, not the token
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait: time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:   store,
		Policies: []throttle.Policy{
			{
				Name: "sheets-project", Match: "sheets.googleapis.com/", Key: kind,
				Limit: throttle.PerMinute(300), Answer: feedback.LeaveOpen,
			},
			{
				Name: "sheets-user", Match: "sheets.googleapis.com/", Key: throttle.Join(account, kind),
				Limit: throttle.PerMinute(60), Answer: googleRefused,
			},
		},
		// Below the throttle, so that a call that has waited has a token that is fresh.
		Base: &oauth2.Transport{Source: tokens, Base: base},
	}))
	// WithHTTPClient turns all options for credentials off.
	return sheets.NewService(ctx, option.WithHTTPClient(retry.NewClient(transport).StandardClient()))
}

// googleRefused knows the refusals of Google's APIs by their reason, because a 403 may
// be about permissions, too. A refusal lasts for the rest of a minute.
var googleRefused = feedback.When{Status: []int{403, 429}}.Then(feedback.Codes{
	Fields: []string{"error.errors.*.reason"},
	Lasts:  map[string]time.Duration{"rateLimitExceeded": time.Minute, "userRateLimitExceeded": time.Minute},
	End:    feedback.RetryAfter(0),
}.Answer)

// googlePlatform counts reads and writes of each user by the minute.
func googlePlatform() platform {
	scope := func(c *call) string {
		kind := map[bool]string{true: " reads", false: " writes"}[c.Method == http.MethodGet]
		return c.Header.Get("Authorization") + kind
	}
	refused := func(status int, reason, name string, header map[string]string) func(*call, time.Duration) reply {
		return func(*call, time.Duration) reply {
			return reply{status, header, fmt.Sprintf(`{"error":{"code":%d,"message":"Quota exceeded for quota metric 'Write requests' and limit `+
				`'Write requests per minute per user'.","errors":[{"domain":"global","reason":%q}],"status":%q}}`, status, reason, name)}
		}
	}
	return platform{
		http2: true,
		limits: func(c *call) []limit {
			return []limit{
				{budget: strings.Fields(scope(c))[2], n: 300, per: time.Minute, cost: 1},
				{budget: scope(c), n: 60, per: time.Minute, cost: 1},
			}
		},
		scopes: func(c *call) []string { return []string{scope(c)} },
		refusals: []refusal{
			{name: "429", closes: scope, lasts: time.Minute, reply: refused(429, "rateLimitExceeded", "RESOURCE_EXHAUSTED", nil)},
			{name: "403", closes: scope, lasts: time.Minute, reply: refused(403, "userRateLimitExceeded", "PERMISSION_DENIED", nil)},
		},
		answer: func(c *call) reply {
			if c.Method == http.MethodGet {
				return ok(`{"range":"A1:B2","values":[["x"]]}`)
			}
			var rows struct{ Values [][]string }
			if json.Unmarshal(c.body, &rows) != nil {
				return reply{status: 400}
			}
			c.do(rows.Values[0][0])
			return ok(`{"spreadsheetId":"s1","updates":{"updatedRows":1}}`)
		},
	}
}

func TestGoogle(t *testing.T) {
	play(t, googlePlatform(), func(t *testing.T, u *upstream) {
		store, users := memstore.New(), 0
		apps := clients(func() *sheets.Service {
			user := fmt.Sprint("user", users)
			users++
			app, err := recipeGoogle(t.Context(), store, u.base(), user, oauth2.StaticTokenSource(&oauth2.Token{AccessToken: user}))
			require.NoError(t, err)
			return app
		})
		add := func(_, i int) error {
			resp, err := apps[i%programs].Spreadsheets.Values.
				Append("s1", "A1", &sheets.ValueRange{Values: [][]any{{fmt.Sprint("row ", i)}}}).
				ValueInputOption("RAW").Context(t.Context()).Do()
			if err == nil {
				require.EqualValues(t, 1, resp.Updates.UpdatedRows)
			}
			return err
		}
		u.calls(0, 363, 12, add) // 121 of each user
		u.requireUsed("Bearer user0 writes", 2*time.Minute)

		u.refuse(30)
		u.calls(363, 137, 12, add)
		u.calls(0, 100, 12, func(_, i int) error {
			got, err := apps[i%programs].Spreadsheets.Values.Get("s1", "A1:B2").Context(t.Context()).Do()
			if err == nil {
				require.Equal(t, "x", got.Values[0][0])
			}
			return err
		})
		for i := range 500 {
			u.requireOnce(fmt.Sprint("row ", i))
		}
	})
}
