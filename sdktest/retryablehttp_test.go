package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeRetryableHTTP(store throttle.Store, base http.RoundTripper, client *retryablehttp.Client) {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: []throttle.Policy{{
			Name: "shop", Match: "api.example.com/", Limit: throttle.PerSecond(40),
			Penalty: feedback.First(
				feedback.Codes{
					Fields: []string{"error.code"},
					Lasts:  map[string]time.Duration{"too_fast": time.Second, "banned": 5 * time.Minute},
				}.Penalty,
				throttle.RetryAfter,
			),
		}},
		Base: base, // leave it out to use http.DefaultTransport
	}))
	client.HTTPClient.Transport = transport // a client that is there already; a new one is retry.NewClient(transport)
	client.CheckRetry = retry.CheckRetry
	client.Backoff = retry.Backoff
}

func TestRetryableHTTP(t *testing.T) {
	play(t, shopPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		shops := clients(func() *retryablehttp.Client {
			client := retryablehttp.NewClient()
			client.Logger = nil
			recipeRetryableHTTP(store, u.base(), client)
			return client
		})
		buy := func(w, i int) error {
			id := fmt.Sprint("order-", i)
			resp, err := shops[w%programs].Post("https://api.example.com/orders", "application/json", []byte(`{"id":"`+id+`"}`))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			var made struct{ ID string }
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&made))
			require.Equal(t, id, made.ID)
			return nil
		}
		u.calls(0, 401, 24, buy)
		u.requireUsed("key", 10*time.Second)

		u.refuse(50)
		u.calls(401, 399, 24, buy)
		for i := range 800 {
			u.requireOnce(fmt.Sprint("order-", i))
		}
	})
}
