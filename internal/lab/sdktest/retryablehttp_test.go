package sdktest

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeRetryableHTTP(store throttle.Store, base http.RoundTripper, client *retryablehttp.Client) {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: shopPolicies,
		Base:     base, // leave it out in a program
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
		buyAll(u, func(w int, id string) error {
			resp, err := shops[w%programs].Post("https://api.example.com/orders", "application/json", []byte(`{"id":"`+id+`"}`))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			var made struct{ ID string }
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&made))
			require.Equal(t, id, made.ID)
			return nil
		})
	})
}
