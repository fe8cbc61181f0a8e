package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
)

// shopPolicies is the table of an API that has no preset.
var shopPolicies = []throttle.Policy{{
	Name: "shop", Match: "api.example.com/", Limit: throttle.PerSecond(40),
	Answer: feedback.Codes{
		Fields: []string{"error.code"},
		Lasts:  map[string]time.Duration{"too_fast": time.Second, "banned": 5 * time.Minute},
	}.Answer, // what it does not know is left to Retry-After
}}

func recipeResty(store throttle.Store, base http.RoundTripper) *resty.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: shopPolicies,
		Base:     base, // leave it out in a program
	}))
	return resty.NewWithClient(retry.NewClient(transport).StandardClient()) // and no SetRetryCount
}

// shopPlatform is an invented API: 40 a second, and refusals of all kinds.
func shopPlatform() platform {
	const key = "key"
	return platform{
		limits: func(*call) []limit {
			return []limit{{budget: key, n: 40, per: time.Second, cost: 1}}
		},
		scopes: func(*call) []string { return []string{key} },
		refusals: []refusal{
			{
				name: "a 200 with a code", closes: always(key), lasts: time.Second,
				reply: func(*call, time.Duration) reply { return ok(`{"error":{"code":"too_fast"}}`) },
			},
			{
				name: "a 403 with a code", closes: always(key), lasts: 5 * time.Minute,
				reply: func(*call, time.Duration) reply { return reply{403, nil, `{"error":{"code":"banned"}}`} },
			},
			{
				name: "429 until a date", closes: always(key), lasts: 30 * time.Second,
				reply: func(_ *call, left time.Duration) reply {
					end := time.Now().Add(left + time.Second).UTC().Format(http.TimeFormat)
					return reply{429, map[string]string{"Retry-After": end}, ""}
				},
			},
		},
		answer: func(c *call) reply {
			var order struct{ ID string }
			if json.Unmarshal(c.body, &order) != nil {
				return reply{status: 400}
			}
			c.do(order.ID)
			return reply{201, nil, `{"id":"` + order.ID + `"}`}
		},
	}
}

func TestResty(t *testing.T) {
	play(t, shopPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		shops := clients(func() *resty.Client { return recipeResty(store, u.base()) })
		buyAll(u, func(w int, id string) error {
			var made struct{ ID string }
			resp, err := shops[w%programs].R().SetContext(t.Context()).
				SetHeader("Accept-Encoding", "gzip"). // so that net/http does not decode the answer, and resty does
				SetBody(map[string]string{"id": id}).SetResult(&made).
				Post("https://api.example.com/orders")
			if err == nil {
				require.Equal(t, http.StatusCreated, resp.StatusCode(), resp.String())
				require.Equal(t, id, made.ID)
			}
			return err
		})
	})
}

// buyAll places 800 orders, half of them while the shop refuses on purpose.
func buyAll(u *upstream, buy func(w int, id string) error) {
	order := func(i int) string { return fmt.Sprint("order-", i) }
	place := func(w, i int) error { return buy(w, order(i)) }
	u.calls(0, 401, 24, place)
	u.requireUsed("key", 10*time.Second)

	u.refuse(50)
	u.calls(401, 399, 24, place)
	for i := range 800 {
		u.requireOnce(order(i))
	}
}
