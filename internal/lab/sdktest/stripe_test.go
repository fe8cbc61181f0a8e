package sdktest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripeapi "github.com/stripe/stripe-go/v85"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeStripe(store throttle.Store, base http.RoundTripper) *stripeapi.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    store,
		Policies: stripe.Policies(stripe.Options{}), // with a sandbox's keys: stripe.Options{Sandbox: true}
		Base:     base,                              // leave it out in a program
	}))
	return stripeapi.NewClient("sk_live_key", stripeapi.WithBackends(stripeapi.NewBackendsWithConfig(&stripeapi.BackendConfig{
		HTTPClient:        retry.NewClient(transport).StandardClient(), // the SDK's own gives up after 80 seconds
		MaxNetworkRetries: stripeapi.Int64(0),                          // the SDK repeats beside the budget
	})))
}

// stripePlatform counts the account and its endpoints by the second.
func stripePlatform() platform {
	endpoint := func(c *call) string {
		if id := strings.TrimPrefix(c.URL.Path, "/v1/customers/"); id != c.URL.Path {
			return c.Method + " /v1/customers/*"
		}
		return c.Method + " " + c.URL.Path
	}
	refused := func(reason string) func(*call, time.Duration) reply {
		return func(*call, time.Duration) reply {
			return reply{429, map[string]string{"Stripe-Rate-Limited-Reason": reason},
				`{"error":{"message":"Request rate limit exceeded.","type":"invalid_request_error","code":"rate_limit"}}`}
		}
	}
	locked := func(*call, time.Duration) reply {
		return reply{status: 429, body: `{"error":{"code":"lock_timeout","type":"invalid_request_error","message":"This object cannot be accessed right now."}}`}
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{
				{budget: "account", n: 100, per: time.Second, cost: 1},
				{budget: endpoint(c), n: 25, per: time.Second, cost: 1},
			}
		},
		scopes: func(c *call) []string { return []string{"account", endpoint(c), c.Header.Get("Idempotency-Key")} },
		refusals: []refusal{
			{name: "global-rate", closes: always("account"), lasts: time.Second, reply: refused("global-rate")},
			{name: "endpoint-rate", closes: endpoint, lasts: time.Second, reply: refused("endpoint-rate")},
			{name: "endpoint-concurrency", closes: endpoint, lasts: time.Second, reply: refused("endpoint-concurrency")},
			{name: "an object that is locked", closes: func(c *call) string { return c.Header.Get("Idempotency-Key") }, lasts: 300 * time.Millisecond, reply: locked},
		},
		answer: func(c *call) reply {
			form, err := url.ParseQuery(string(c.body))
			if err != nil || c.Header.Get("Authorization") != "Bearer sk_live_key" {
				return reply{status: 401, body: `{"error":{"type":"invalid_request_error"}}`}
			}
			if name := form.Get("name"); name != "" {
				c.do(name)
				return ok(fmt.Sprintf(`{"id":"cus_%s1","object":"customer","name":%q}`, name, name))
			}
			id := strings.TrimPrefix(c.URL.Path, "/v1/customers/")
			return ok(fmt.Sprintf(`{"id":%q,"object":"customer"}`, id))
		},
	}
}

func TestStripe(t *testing.T) {
	play(t, stripePlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() *stripeapi.Client { return recipeStripe(store, u.base()) })
		work := func(w, i int) error {
			customers := apps[w%programs].V1Customers
			if i%2 == 0 {
				id := fmt.Sprint("cus_", i)
				customer, err := customers.Retrieve(t.Context(), id, nil)
				if err == nil {
					require.Equal(t, id, customer.ID)
				}
				return err
			}
			name := fmt.Sprint("customer", i)
			params := &stripeapi.CustomerCreateParams{Name: stripeapi.String(name)}
			params.SetIdempotencyKey(name)
			customer, err := customers.Create(t.Context(), params)
			if err == nil {
				require.Equal(t, name, customer.Name)
			}
			return err
		}
		u.calls(0, 502, 24, work)
		u.requireUsed("GET /v1/customers/*", 10*time.Second)

		u.refuse(60)
		u.calls(502, 500, 24, work)
		for i := 1; i < 1002; i += 2 {
			u.requireOnce(fmt.Sprint("customer", i))
		}
	})
}
