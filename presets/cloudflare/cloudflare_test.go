package cloudflare_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/cloudflare"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const (
	zones   = "https://api.cloudflare.com/client/v4/zones"
	graphql = "POST https://api.cloudflare.com/client/v4/graphql"
)

func usual(status int) presettest.Case {
	return presettest.Case{Request: zones, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	recorded := presettest.Recorded(t, "refused.http").As("too many", "cloudflare-user 30s")
	recorded.Left = "cloudflare-user 0 30s"
	presettest.Run(t, cloudflare.Policies(cloudflare.Options{}), usual(429), []presettest.Case{
		recorded,
		{Name: "it does not say for how long", Answers: `{"success":false}`, Closes: "cloudflare-user 5m"},
		{Name: "GraphQL", Request: graphql, Header: presettest.JSON("Retry-After", "9"), Answers: `{"data":null}`, Closes: "cloudflare-graphql 9s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, cloudflare.Policies(cloudflare.Options{}), usual(200), []presettest.Case{
		{Name: "an answer that quotes a refusal", Answers: `{"success":true,"result":[{"code":971}]}`},
		{Name: "not allowed", Status: 403, Answers: `{"success":false,"errors":[{"code":10000,"message":"Authentication error"}]}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://dash.cloudflare.com/client/v4/zones", Status: 429},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, cloudflare.Policies(cloudflare.Options{}), usual(200), []presettest.Case{
		{Name: "as documented", Header: presettest.JSON("Ratelimit", `"default";r=50;t=30`, "Ratelimit-Policy", `"burst";q=100;w=60`), Left: "cloudflare-user 50 30s"},
		{Name: "the least of several", Header: presettest.JSON("Ratelimit", `"default";r=50;t=30, "burst";r=7;t=10`), Left: "cloudflare-user 7 10s"},
		{Name: "GraphQL", Request: graphql, Header: presettest.JSON("Ratelimit", `"default";r=50;t=30`)},
		{Name: "unreadable", Header: presettest.JSON("Ratelimit", `"default";r=many`)},
	})
}

func TestSharedBudgets(t *testing.T) {
	with := func(token string) *http.Request {
		r := presettest.Request(t, zones, "")
		r.Header.Set("Authorization", token)
		return r
	}
	for _, c := range []struct {
		name, row string
		options   cloudflare.Options
		same      bool
	}{
		{"another user", "cloudflare-user", cloudflare.Options{}, false},
		{"a user with two tokens", "cloudflare-user", cloudflare.Options{User: "ada"}, true},
		{"an address", "cloudflare-address", cloudflare.Options{}, true},
	} {
		require.Equal(t, c.same, presettest.Shared(t, cloudflare.Policies(c.options), c.row, with("x"), with("y")), c.name)
	}
	require.Equal(t, "cloudflare-user 6000/5m, cloudflare-address 200/s, cloudflare-graphql 320/5m",
		presettest.Limits(cloudflare.Policies(cloudflare.Options{Per5Minutes: 6000})))
}
