package feedback_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
)

// minutes is an upstream that allows 100 in each minute, from 20 seconds past the
// full one, and says what is left but not for how long.
type minutes struct {
	window int64
	used   int
	total  int
}

func (u *minutes) RoundTrip(r *http.Request) (*http.Response, error) {
	if w := (time.Now().Unix() + 40) / 60; w != u.window {
		u.window, u.used = w, 0
	}
	u.used++
	u.total++
	left := strconv.Itoa(100 - u.used)
	resp := answer(200, "", "N", left, "RateLimit", `"m";r=`+left, "RateLimit-Policy", `"m";q=100;w=60`)
	resp.Request = r
	return resp, nil
}

// TestUsedAlone: a program that has a limit to itself uses nearly all of it, although
// answers do not say when there is more.
func TestUsedAlone(t *testing.T) {
	for name, left := range map[string]feedback.Reader{
		"RateLimit without t":   feedback.RateLimit{}.Left,
		"Headers without Reset": feedback.Headers{Remaining: "N", Per: time.Minute}.Left,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &minutes{}
				tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Base: up,
					Policies: []throttle.Policy{{Name: "m", Match: "/", Limit: throttle.PerMinute(100), Answer: left}}})
				require.NoError(t, err)
				for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
					require.NoError(t, err)
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
				}
				require.Greater(t, up.total, 1980)
			})
		})
	}
}
