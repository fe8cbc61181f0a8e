package shopify_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/shopify"
)

type header = presettest.Header

const (
	orders  = "https://acme.myshopify.com/admin/api/2026-10/orders.json"
	graphql = "POST https://acme.myshopify.com/admin/api/2026-10/graphql.json"

	exceeded  = `{"errors":"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."}`
	throttled = `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED","documentation":"https://shopify.dev/api/usage/rate-limits"}}],"extensions":{"cost":{"requestedQueryCost":502,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":298,"restoreRate":50.0}}}}`
)

var asJSON = header{"Content-Type": "application/json; charset=utf-8"}

func calls(used string) header { return header{"X-Shopify-Shop-Api-Call-Limit": used} }

func TestRefusals(t *testing.T) {
	none := "shopify-rest 0 500ms"
	refused := func(retryAfter string) header {
		return header{"X-Shopify-Shop-Api-Call-Limit": "40/40", "Retry-After": retryAfter}
	}
	presettest.Run(t, shopify.Policies(shopify.Options{}), presettest.Case{Request: graphql}, []presettest.Case{
		{Name: "REST", Request: orders, Status: 429, Header: refused("2.0"), Answers: exceeded, Closes: "shopify-rest 2s", Left: none},
		{Name: "REST, with a fraction", Request: orders, Status: 429, Header: refused("0.5"), Answers: exceeded, Closes: "shopify-rest 500ms",
			Left: none},
		{Name: "REST that does not say", Request: orders, Status: 429, Answers: exceeded, Closes: "shopify-rest 1s"},
		{Name: "GraphQL", Header: asJSON, Answers: throttled, Closes: "shopify-graphql 3.09s", Left: "shopify-graphql 298 1s"},
		{Name: "GraphQL, 429 without a Retry-After", Status: 429, Header: asJSON, Answers: throttled, Closes: "shopify-graphql 3.09s", Left: "shopify-graphql 298 1s"},
		{Name: "GraphQL, 429 with a Retry-After", Status: 429, Header: header{"Content-Type": "application/json", "Retry-After": "7"}, Answers: throttled,
			Closes: "shopify-graphql 7s", Left: "shopify-graphql 298 1s"},
		{Name: "GraphQL, overdrawn", Header: asJSON, Answers: refusal("900", "-100", "50", "1000"), Closes: "shopify-graphql 17.01s", Left: "shopify-graphql 0 1s"},
		{Name: "GraphQL, by a hair", Header: asJSON, Answers: refusal("101", "100", "50", "1000"), Closes: "shopify-graphql 1ms", Left: "shopify-graphql 100 1s"},
		{Name: "GraphQL, more than the bucket holds", Header: asJSON, Answers: refusal("5000", "900", "50", "1000"), Closes: "shopify-graphql 1.01s", Left: "shopify-graphql 900 1s"},
		{Name: "GraphQL, nothing is missing", Header: asJSON, Answers: refusal("10", "900", "50", "1000"), Closes: "shopify-graphql 1s", Left: "shopify-graphql 900 1s"},
		{Name: "GraphQL, nothing comes back", Header: asJSON, Answers: refusal("900", "100", "0", "1000"), Closes: "shopify-graphql 1s", Left: "shopify-graphql 100 1s"},
		{Name: "GraphQL, for long", Header: asJSON, Answers: refusal("900000000", "100", "0.5", "2000000000"), Closes: "shopify-graphql 24h", Left: "shopify-graphql 100 1s"},
		{Name: "GraphQL, without the cost", Header: asJSON, Answers: refusal("null", "100", "50", "1000"), Closes: "shopify-graphql 1s", Left: "shopify-graphql 100 1s"},
		{Name: "GraphQL, without what is there", Header: asJSON, Answers: refusal("900", "null", "50", "1000"), Closes: "shopify-graphql 1s"},
		{Name: "GraphQL among other errors", Header: asJSON,
			Answers: `{"errors":[{"message":"m","extensions":{"code":"OTHER"}},{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`,
			Closes:  "shopify-graphql 1s"},
		{Name: "a query in part", Body: `{"query":"{ a b }"}`, Header: asJSON,
			Answers: `{"data":{"a":{},"b":null},"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, Closes: "shopify-graphql 1s"},
		{Name: "a mutation in part is not repeated", NoRefusal: true, Body: `{"query":"mutation { a b }"}`, Header: asJSON,
			Answers: `{"data":{"a":{},"b":null},"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, Closes: "shopify-graphql 1s"},
		{Name: "a mutation that was not begun", Body: `{"query":"mutation { a b }"}`, Header: asJSON,
			Answers: `{"data":null,"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, Closes: "shopify-graphql 1s"},
		{Name: "GraphQL, 429", Status: 429, Header: header{"Retry-After": "2.0"}, Closes: "shopify-graphql 2s"},
	})
}

// refusal is the answer to a query that costs more points than there are.
func refusal(costs, left, perSecond, most string) string {
	return `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],"extensions":{"cost":{"requestedQueryCost":` + costs +
		`,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":` + most + `,"currentlyAvailable":` + left + `,"restoreRate":` + perSecond + `}}}}`
}

// TestACostlyQueryIsRefusedOnce: a refusal says how many points are missing and how fast they come back.
func TestACostlyQueryIsRefusedOnce(t *testing.T) {
	for _, c := range []struct {
		name              string
		plan              shopify.Plan
		costs, left, rate float64
		estimate          int
		served            time.Duration
	}{
		{"the whole bucket", shopify.Plan{Points: 50, PointsBurst: 1_000}, 900, 100, 50, 100, 16 * time.Second},
		{"the bucket of today", shopify.Standard, 1_900, 100, 100, 100, 18 * time.Second},
		{"a bucket that is not the plan's", shopify.Plus, 900, 0, 50, 100, 18 * time.Second},
		{"an estimate that is true", shopify.Plan{Points: 50, PointsBurst: 1_000}, 900, 100, 50, 900, 18 * time.Second},
		{"an estimate of one", shopify.Plan{Points: 50, PointsBurst: 1_000}, 900, 100, 50, 1, 16 * time.Second},
		{"an overdrawn bucket", shopify.Standard, 900, -100, 100, 100, 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, refused := time.Now(), 0
				upstream := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					left := c.left + c.rate*time.Since(begin).Seconds()
					answer := `{"data":{}}`
					if left < c.costs {
						refused++
						answer = refusal(fmt.Sprint(c.costs), fmt.Sprint(left), fmt.Sprint(c.rate), "20000")
					}
					return &http.Response{
						StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
						Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
					}, nil
				})
				transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: shopify.Policies(shopify.Options{Plan: c.plan, Estimate: func(*http.Request) int { return c.estimate }}), Base: upstream})
				require.NoError(t, err)

				for {
					resp, err := transport.RoundTrip(presettest.Request(t, graphql, `{"query":"{ a }"}`))
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					if throttle.AnswerOf(resp).Close == 0 {
						break
					}
				}

				require.LessOrEqual(t, refused, 2)
				require.InDelta(t, c.served.Seconds(), time.Since(begin).Seconds(), 0.5)
			})
		})
	}
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, shopify.Policies(shopify.Options{}), presettest.Case{Request: orders}, []presettest.Case{
		{Name: "success", Header: calls("32/40"), Answers: `{"orders":[]}`, Left: "shopify-rest 8 500ms"},
		{Name: "no permission", Status: 403, Answers: `{"errors":"[API] This action requires merchant approval for read_orders scope."}`},
		{Name: "a token that is wrong", Status: 401, Header: calls("40/40"), Answers: `{"errors":"[API] Invalid API key or access token"}`},
		{Name: "a store that does not pay", Status: 402, Answers: `{"errors":"Unavailable Shop"}`},
		{Name: "a query that is wrong", Request: graphql, Header: asJSON,
			Answers: `{"errors":[{"message":"Field 'x' doesn't exist","extensions":{"code":"undefinedField"}}]}`},
		{Name: "a query that costs too much ever", Request: graphql, Header: asJSON,
			Answers: `{"errors":[{"message":"Query cost is 2003, which exceeds the single query max cost limit 1000","extensions":{"code":"MAX_COST_EXCEEDED"}}]}`},
		{Name: "the code in the data", Request: graphql, Header: asJSON,
			Answers: `{"data":{"errors":[{"extensions":{"code":"THROTTLED"}}],"note":"THROTTLED"}}`},
	})
}

func TestSettle(t *testing.T) {
	answer := func(cost string) string {
		return `{"data":{"shop":{"name":"acme"}},"extensions":{"cost":{"requestedQueryCost":101,"actualQueryCost":` + cost +
			`,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":954.5,"restoreRate":50.0}}}}`
	}
	available := "shopify-graphql 954 1s"
	presettest.Run(t, shopify.Policies(shopify.Options{}), presettest.Case{Request: graphql, Header: asJSON}, []presettest.Case{
		{Name: "less", Answers: answer("46"), Costs: "shopify-graphql 46", Left: available},
		{Name: "more", Answers: answer("146"), Costs: "shopify-graphql 146", Left: available},
		{Name: "as estimated", Answers: answer("100"), Left: available},
		{Name: "no word of it", Answers: `{"data":{}}`},
	})
}

// TestRESTIsLeftAlone: nothing in the body of REST is looked at.
func TestRESTIsLeftAlone(t *testing.T) {
	require.Zero(t, presettest.LookedAt(t, shopify.Policies(shopify.Options{}), orders, 200, asJSON, `{"orders":[`))
}

// TestOf64KBIsLookedAt: a larger answer to a query does not wait for its end.
func TestOf64KBIsLookedAt(t *testing.T) {
	require.LessOrEqual(t, presettest.LookedAt(t, shopify.Policies(shopify.Options{}), graphql, 200, asJSON, `{"data":`), 64<<10)
}

func TestBudgets(t *testing.T) {
	policies := shopify.Policies(shopify.Options{
		Caller:   throttle.Header("App"),
		Estimate: func(*http.Request) int { return 7 },
	})
	require.Equal(t, "shopify-rest App", presettest.Splits(t, policies, orders, "App"))
	require.Equal(t, "shopify-graphql App", presettest.Splits(t, policies, graphql, "App"))
	require.Equal(t, "shopify-graphql 7", presettest.Costs(t, policies, presettest.Request(t, graphql)))
	require.Equal(t, "shopify-rest 1", presettest.Costs(t, policies, presettest.Request(t, orders)))

	for host, same := range map[string]bool{"ACME": true, "other": false} {
		other := presettest.Request(t, "https://"+host+".myshopify.com/admin/shop.json")
		require.Equal(t, same, presettest.Shared(t, policies, "shopify-rest", presettest.Request(t, orders), other), host)
	}
}

// TestTwoPlans: stores of two plans, in two transports with one store.
func TestTwoPlans(t *testing.T) {
	silent := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}, nil
	})
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		burst := func(plan shopify.Plan, host string) (calls int) {
			transport, err := throttle.New(throttle.Config{
				Store: store, Policies: shopify.Policies(shopify.Options{Plan: plan}), Base: silent, MaxWait: -1,
			})
			require.NoError(t, err)
			for {
				resp, err := transport.RoundTrip(presettest.Request(t, "https://"+host+"/admin/shop.json"))
				if err != nil {
					require.ErrorIs(t, err, throttle.ErrLimited)
					return calls
				}
				require.NoError(t, resp.Body.Close())
				calls++
			}
		}
		require.Equal(t, 40, burst(shopify.Standard, "small.myshopify.com"))
		require.Equal(t, 400, burst(shopify.Plus, "large.myshopify.com"))
	})
}
