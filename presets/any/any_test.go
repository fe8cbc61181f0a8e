package any_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	anyapi "github.com/fleetthrottle/throttle/presets/any"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const things = "https://api.example.org/v1/things"

// TestRefusals: what closes the row, and for how long.
func TestRefusals(t *testing.T) {
	usual := presettest.Case{Request: things, Status: http.StatusTooManyRequests, Header: presettest.JSON()}
	presettest.Run(t, anyapi.Policies(anyapi.Options{}), usual, []presettest.Case{
		{Name: "nothing more", Closes: "any 1s"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "7"), Closes: "any 7s"},
		{Name: "the reset of a quota", Header: presettest.JSON("RateLimit", `"a";r=0;t=12`, "RateLimit-Policy", `"a";q=100;w=60`), Closes: "any 12s", Left: "any 0 12s"},
		{Name: "the fields without a standard", Status: 403, Header: presettest.JSON("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "20"), Closes: "any 20s", Left: "any 0 20s"},
	})
}

// TestNoRefusals: no other answer closes the row, unless it says that nothing is left.
func TestNoRefusals(t *testing.T) {
	usual := presettest.Case{Request: things, Status: http.StatusOK, Header: presettest.JSON()}
	presettest.Run(t, anyapi.Policies(anyapi.Options{}), usual, []presettest.Case{
		{Name: "an answer"},
		{Name: "the last of a quota", Header: presettest.JSON("RateLimit", `"a";r=0;t=12`), Closes: "any 12s", Left: "any 0 12s"},
		{Name: "forbidden", Status: 403},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "7")},
		{Name: "a quota", Header: presettest.JSON("RateLimit", `"a";r=4;t=12`, "RateLimit-Policy", `"a";q=100;w=60`), Left: "any 4 12s"},
	})
}

// TestKeys: requests with one credential share a budget, and no others; a signature is no credential.
func TestKeys(t *testing.T) {
	key := func(url string, fields ...string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		return anyapi.Policies(anyapi.Options{})[0].Key(r)
	}

	const auth = "Authorization"
	seen := make(map[string]bool)
	for _, k := range []string{
		key(things), key("https://api.example.com/v1/things"), key(things, auth, "Bearer a"), key(things, auth, "Bearer b"), key(things, auth, "Basic a"),
		key(things, auth, "opaque"), key(things, "X-Api-Key", "c"), key(things, "PRIVATE-TOKEN", "d"), key(things + "?api_key=e"), key(things + "?access_token=f"),
		key(things, auth, "AWS4-HMAC-SHA256 Credential=1"), key(things, auth, "OAuth oauth_nonce=1"),
	} {
		require.False(t, seen[k], "%q twice", k)
		seen[k] = true
	}
	for _, same := range [][2]string{
		{key(things), key("https://API.example.org:443/v2/others?page=2")},
		{key(things, auth, "Bearer a"), key(things+"/1", auth, "Bearer a", "X-Api-Key", "c")},
		{key(things, auth, "AWS4-HMAC-SHA256 Credential=1"), key(things, auth, "AWS4-HMAC-SHA256 Credential=2")},
		{key(things, auth, "OAuth oauth_nonce=1"), key(things, auth, "OAuth oauth_nonce=2")},
	} {
		require.Equal(t, same[0], same[1])
	}
}

// describes is an API that tells its limit with each answer, by credential.
type describes struct{}

// RoundTrip implements [http.RoundTripper].
func (describes) RoundTrip(r *http.Request) (*http.Response, error) {
	n := map[string]string{"Bearer small": "2", "Bearer large": "100"}[r.Header.Get("Authorization")]
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: http.NoBody, Header: http.Header{"Ratelimit-Policy": {`"a";q=` + n + `;w=60`}}}, nil
}

// TestEachCredentialKeepsItsOwn: of two credentials each has the limit that its answers tell.
func TestEachCredentialKeepsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: anyapi.Policies(anyapi.Options{}), Base: describes{}, MaxWait: throttle.Forever}))
		for credential, want := range map[string]time.Duration{"Bearer small": 3 * time.Minute, "Bearer large": 0} {
			begin := time.Now()
			for range 8 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, things, nil)
				require.NoError(t, err)
				r.Header.Set("Authorization", credential)
				resp, err := tr.RoundTrip(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			require.InDelta(t, want, time.Since(begin), float64(time.Second), credential)
		}
	})
}
