package shopify_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/shopify"
)

type (
	closes = map[string]time.Duration
	left   = map[string]throttle.Quota
	costs  = map[string]int
	header = presettest.Header
)

const (
	orders  = "https://acme.myshopify.com/admin/api/2026-10/orders.json"
	graphql = "POST https://acme.myshopify.com/admin/api/2026-10/graphql.json"

	exceeded  = `{"errors":"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."}`
	throttled = `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED","documentation":"https://shopify.dev/api/usage/rate-limits"}}],"extensions":{"cost":{"requestedQueryCost":502,"actualQueryCost":null,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":298,"restoreRate":50.0}}}}`
)

var asJSON = header{"Content-Type": "application/json; charset=utf-8"}

func calls(used string) header { return header{"X-Shopify-Shop-Api-Call-Limit": used} }

func TestRefusals(t *testing.T) {
	none := left{"shopify-rest": {Left: 0, Reset: 500 * time.Millisecond}}
	refused := func(retryAfter string) header {
		return header{"X-Shopify-Shop-Api-Call-Limit": "40/40", "Retry-After": retryAfter}
	}
	presettest.Run(t, shopify.Policies(shopify.Options{}), []presettest.Case{
		{
			Name: "REST", Request: orders, Status: 429, Header: refused("2.0"), Answers: exceeded,
			Closes: closes{"shopify-rest": 2 * time.Second}, Left: none,
		},
		{
			Name: "REST, with a fraction", Request: orders, Status: 429, Header: refused("0.5"), Answers: exceeded,
			Closes: closes{"shopify-rest": 500 * time.Millisecond}, Left: none,
		},
		{
			Name: "REST that does not say", Request: orders, Status: 429, Answers: exceeded,
			Closes: closes{"shopify-rest": time.Second},
		},
		{
			Name: "GraphQL", Request: graphql, Header: asJSON, Answers: throttled,
			Closes: closes{"shopify-graphql": time.Second},
			Left:   left{"shopify-graphql": {Left: 298, Reset: time.Second}},
		},
		{
			Name: "GraphQL among other errors", Request: graphql, Header: asJSON,
			Answers: `{"errors":[{"message":"m","extensions":{"code":"OTHER"}},{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`,
			Closes:  closes{"shopify-graphql": time.Second},
		},
		{
			Name: "a query in part", Request: graphql, Body: `{"query":"{ a b }"}`, Header: asJSON,
			Answers: `{"data":{"a":{},"b":null},"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`,
			Closes:  closes{"shopify-graphql": time.Second},
		},
		{
			Name: "a mutation in part is not repeated", NoRefusal: true, Request: graphql, Body: `{"query":"mutation { a b }"}`, Header: asJSON,
			Answers: `{"data":{"a":{},"b":null},"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`,
			Closes:  closes{"shopify-graphql": time.Second},
		},
		{
			Name: "a mutation that was not begun", Request: graphql, Body: `{"query":"mutation { a b }"}`, Header: asJSON,
			Answers: `{"data":null,"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`,
			Closes:  closes{"shopify-graphql": time.Second},
		},
		{
			Name: "GraphQL, 429", Request: graphql, Status: 429, Header: header{"Retry-After": "2.0"},
			Closes: closes{"shopify-graphql": 2 * time.Second},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, shopify.Policies(shopify.Options{}), []presettest.Case{
		{
			Name: "success", Request: orders, Header: calls("32/40"), Answers: `{"orders":[]}`,
			Left: left{"shopify-rest": {Left: 8, Reset: 500 * time.Millisecond}},
		},
		{Name: "no permission", Request: orders, Status: 403, Answers: `{"errors":"[API] This action requires merchant approval for read_orders scope."}`},
		{Name: "a token that is wrong", Request: orders, Status: 401, Header: calls("40/40"), Answers: `{"errors":"[API] Invalid API key or access token"}`},
		{Name: "a store that does not pay", Request: orders, Status: 402, Answers: `{"errors":"Unavailable Shop"}`},
		{Name: "a query that is wrong", Request: graphql, Header: asJSON, Answers: `{"errors":[{"message":"Field 'x' doesn't exist","extensions":{"code":"undefinedField"}}]}`},
		{
			Name: "a query that costs too much ever", Request: graphql, Header: asJSON,
			Answers: `{"errors":[{"message":"Query cost is 2003, which exceeds the single query max cost limit 1000","extensions":{"code":"MAX_COST_EXCEEDED"}}]}`,
		},
		{Name: "the code in the data", Request: graphql, Header: asJSON, Answers: `{"data":{"errors":[{"extensions":{"code":"THROTTLED"}}],"note":"THROTTLED"}}`},
	})
}

func TestSettle(t *testing.T) {
	answer := func(cost string) string {
		return `{"data":{"shop":{"name":"acme"}},"extensions":{"cost":{"requestedQueryCost":101,"actualQueryCost":` + cost +
			`,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":954.5,"restoreRate":50.0}}}}`
	}
	available := left{"shopify-graphql": {Left: 954, Reset: time.Second}}
	presettest.Run(t, shopify.Policies(shopify.Options{}), []presettest.Case{
		{Name: "less", Request: graphql, Header: asJSON, Answers: answer("46"), Costs: costs{"shopify-graphql": 46}, Left: available},
		{Name: "more", Request: graphql, Header: asJSON, Answers: answer("146"), Costs: costs{"shopify-graphql": 146}, Left: available},
		{Name: "as estimated", Request: graphql, Header: asJSON, Answers: answer("100"), Left: available},
		{Name: "no word of it", Request: graphql, Header: asJSON, Answers: `{"data":{}}`},
	})
}

// TestRESTIsLeftAlone: nothing in the body of REST is looked at.
func TestRESTIsLeftAlone(t *testing.T) {
	r := presettest.Request(t, orders, nil)
	read := presettest.LookedAt(t, shopify.Policies(shopify.Options{}), r, 200, asJSON, `{"orders":[`)
	require.Zero(t, read)
}

// TestOf64KBIsLookedAt: a larger answer to a query does not wait for its end.
func TestOf64KBIsLookedAt(t *testing.T) {
	r := presettest.Request(t, graphql, nil)
	read := presettest.LookedAt(t, shopify.Policies(shopify.Options{}), r, 200, asJSON, `{"data":`)
	require.LessOrEqual(t, read, 64<<10)
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		plan          shopify.Plan
		calls, points string
	}{
		{shopify.Plan{}, "2/s burst 40", "100/s burst 1000"},
		{shopify.Standard, "2/s burst 40", "100/s burst 1000"},
		{shopify.Advanced, "4/s burst 80", "200/s burst 2000"},
		{shopify.Plus, "20/s burst 400", "1000/s burst 10000"},
		{shopify.Enterprise, "40/s burst 800", "2000/s burst 20000"},
	} {
		require.Equal(t, map[string]string{"shopify-rest": c.calls, "shopify-graphql": c.points},
			presettest.Limits(shopify.Policies(shopify.Options{Plan: c.plan})))
	}
}

func TestBudgets(t *testing.T) {
	policies := shopify.Policies(shopify.Options{
		App:      throttle.Header("App"),
		Estimate: func(*http.Request) int { return 7 },
	})
	require.Equal(t, map[string][]string{"shopify-rest": {"App"}}, presettest.Splits(t, policies, orders, "App"))
	require.Equal(t, map[string][]string{"shopify-graphql": {"App"}}, presettest.Splits(t, policies, graphql, "App"))
	require.Equal(t, costs{"shopify-graphql": 7}, presettest.Costs(t, policies, presettest.Request(t, graphql, nil)))
	require.Equal(t, costs{"shopify-rest": 1}, presettest.Costs(t, policies, presettest.Request(t, orders, nil)))

	store := func(url string) string {
		b := presettest.Budget(t, policies, "shopify-rest", presettest.Request(t, url, nil))
		require.NotEmpty(t, b)
		return b
	}
	require.Equal(t, store(orders), store("https://ACME.myshopify.com/admin/shop.json"))
	require.NotEqual(t, store(orders), store("https://other.myshopify.com/admin/shop.json"))
}

// TestTwoPlans: stores of two plans, in two transports with one store.
func TestTwoPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		burst := func(plan shopify.Plan, host string) (calls int) {
			transport, err := throttle.New(throttle.Config{
				Store: store, Policies: shopify.Policies(shopify.Options{Plan: plan}), Base: answers{}, MaxWait: -1,
			})
			require.NoError(t, err)
			for {
				resp, err := transport.RoundTrip(presettest.Request(t, "https://"+host+"/admin/shop.json", nil))
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

// answers is an upstream that says nothing.
type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}, nil
}
