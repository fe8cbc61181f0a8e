package retry_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

// TestARepeatTakesAnotherVariant repeats what a banned variant refused at another one, at once.
func TestARepeatTakesAnotherVariant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var came []string
		tr := throttle.Must(throttle.New(throttle.Config{
			Store: memstore.New(),
			Policies: []throttle.Policy{
				{Name: "a", Match: "a.example.com/", Limit: throttle.PerSecond(5)},
				{Name: "b", Match: "b.example.com/", Limit: throttle.PerSecond(5)},
			},
			Base: choiceBase(func(r *http.Request) *http.Response {
				came = append(came, r.URL.Host)
				resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}
				if strings.HasPrefix(r.URL.Host, "a") {
					resp.StatusCode = http.StatusTooManyRequests
					resp.Header.Set("Retry-After", "60")
				}
				return resp
			}),
		}))
		choice, err := throttle.NewChoice(tr,
			throttle.Variant{Name: "a"},
			throttle.Variant{Name: "b", Change: func(r *http.Request) error { r.URL.Host = "b.example.com"; return nil }})
		require.NoError(t, err)
		client := retry.NewClient(tr)
		client.HTTPClient.Transport = choice
		began := time.Now()
		resp, err := client.StandardClient().Get("https://a.example.com/")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []string{"a.example.com", "b.example.com"}, came)
		require.Less(t, time.Since(began), time.Second)
	})
}

// A choiceBase is a base that is a function.
type choiceBase func(*http.Request) *http.Response

func (b choiceBase) RoundTrip(r *http.Request) (*http.Response, error) { return b(r), nil }
