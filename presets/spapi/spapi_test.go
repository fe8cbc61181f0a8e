package spapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/spapi"
)

const (
	host     = "https://sellingpartnerapi-na.amazon.com"
	orders   = host + "/orders/v0/orders"
	outbound = host + "/fba/outbound/2020-07-01/fulfillmentOrders"
)

type (
	header = presettest.Header
	closes = map[string]time.Duration
)

const exceeded = `{"errors":[{"code":"QuotaExceeded","message":"You exceeded your quota for the requested resource.","details":""}]}`

func TestRefusals(t *testing.T) {
	said := func(rate string) header {
		return header{"Content-Type": "application/json", "x-amzn-RateLimit-Limit": rate}
	}
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, spapi.Policies(spapi.Options{}), []presettest.Case{
		{
			Name: "getOrders", Request: orders, Status: 429, Header: json, Answers: exceeded,
			Closes: closes{"spapi-getOrders": time.Minute},
		},
		{
			Name: "getOrders, at the rate that it says", Request: orders, Status: 429, Header: said("0.0167"), Answers: exceeded,
			Closes: closes{"spapi-getOrders": 59_880_239_521},
		},
		{
			Name: "getOrder", Request: orders + "/902-3159896-1390916", Status: 429, Header: json, Answers: exceeded,
			Closes: closes{"spapi-getOrder": 2 * time.Second},
		},
		{
			Name: "getOrderItems", Request: orders + "/902-3159896-1390916/orderItems", Status: 429, Header: said("0.5"), Answers: exceeded,
			Closes: closes{"spapi-getOrderItems": 2 * time.Second},
		},
		{
			Name: "createRestrictedDataToken", Request: "POST " + host + "/tokens/2021-03-01/restrictedDataToken",
			Status: 429, Header: json, Answers: exceeded,
			Closes: closes{"spapi-createRestrictedDataToken": time.Second},
		},
		{
			Name: "fulfillment outbound, at a plan of its own", Request: "PUT " + outbound + "/A-1/cancel", Status: 429, Header: said("8.0"), Answers: exceeded,
			Closes: closes{"spapi-fulfillmentOutbound": 125 * time.Millisecond},
		},
		{
			Name: "a rate that cannot be", Request: orders, Status: 429, Header: said("0.0000000001"), Answers: exceeded,
			Closes: closes{"spapi-getOrders": throttle.MaxPenalty},
		},
		{
			Name: "a rate that is none", Request: orders, Status: 429, Header: said("NaN"), Answers: exceeded,
			Closes: closes{"spapi-getOrders": time.Minute},
		},
		{
			Name: "Retry-After", Request: orders, Status: 429, Header: header{"Retry-After": "5", "x-amzn-RateLimit-Limit": "0.0167"},
			Closes: closes{"spapi-getOrders": 5 * time.Second},
		},
		{
			Name: "away, for a while, says one backend", Request: orders, Status: 503, Header: header{"Retry-After": "5"},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	said := header{"Content-Type": "application/json", "x-amzn-RateLimit-Limit": "0.0167"}
	presettest.Run(t, spapi.Policies(spapi.Options{}), []presettest.Case{
		{Name: "orders", Request: orders, Header: said, Answers: `{"payload":{"Orders":[]}}`},
		{Name: "an answer that quotes a refusal", Request: orders, Header: said, Answers: exceeded},
		{
			Name: "not allowed", Request: orders, Status: 403, Header: said,
			Answers: `{"errors":[{"code":"Unauthorized","message":"Access to requested resource is denied.","details":""}]}`,
		},
		{Name: "no such order", Request: orders + "/1", Status: 404, Header: said, Answers: `{"errors":[{"code":"NotFound"}]}`},
		{Name: "away", Request: orders, Status: 503, Header: said, Answers: `{"errors":[{"code":"ServiceUnavailable"}]}`},
		{Name: "an operation without a row", Request: host + "/feeds/2021-06-30/feeds", Status: 429, Header: said, Answers: exceeded},
	})
}

func TestStreamsAreLeftAlone(t *testing.T) {
	r := presettest.Request(t, orders, nil)
	require.Zero(t, presettest.LookedAt(t, spapi.Policies(spapi.Options{}), r, 429, header{"Content-Type": "application/json"}, "{"))
}

func TestSharedBudgets(t *testing.T) {
	shops := spapi.Options{Account: throttle.Header("X-Shop")}
	for _, c := range []struct {
		policy, a, b string
		same         bool
	}{
		{"spapi-getOrder", orders + "/1", orders + "/2", true},
		{"spapi-fulfillmentOutbound", "PUT " + outbound + "/A-1", "PUT " + outbound + "/A-2", true},
		{"spapi-fulfillmentOutbound", "PUT " + outbound + "/A-1", "GET " + outbound + "/A-1", false},
		{"spapi-fulfillmentOutbound", "PUT " + outbound + "/A-1/cancel", "PUT " + outbound + "/A-1", false},
	} {
		policies := spapi.Policies(shops)
		a, b := presettest.Request(t, c.a, nil), presettest.Request(t, c.b, nil)
		budget := presettest.Budget(t, policies, c.policy, a)
		require.NotEmpty(t, budget)
		require.Equal(t, c.same, budget == presettest.Budget(t, policies, c.policy, b), "%+v", c)
		a.Header.Set("X-Shop", "another")
		require.NotEqual(t, budget, presettest.Budget(t, policies, c.policy, a), "%+v", c)
	}
}

func TestOwnOperations(t *testing.T) {
	policies := spapi.Policies(spapi.Options{
		Operations: append(spapi.Usage(), spapi.Operation{
			Name: "createFeed", Match: "POST /feeds/2021-06-30/feeds", Limit: throttle.TokenBucket(1, 2*time.Minute, 15),
		}),
		Host: "sandbox.sellingpartnerapi-na.amazon.com",
	})
	feed := presettest.Request(t, "POST https://sandbox.sellingpartnerapi-na.amazon.com/feeds/2021-06-30/feeds", nil)
	require.Equal(t, []string{"spapi-createFeed"}, presettest.Rows(t, policies, feed))
	require.Empty(t, presettest.Rows(t, policies, presettest.Request(t, orders, nil)))
}

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: spapi.Policies(spapi.Options{}),
	}))
	r, err := http.NewRequest(http.MethodGet, "https://sellingpartnerapi-eu.amazon.com/orders/v0/orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range transport.Explain(r) {
		fmt.Println(c.Budget.Policy, c.Limit)
	}
	// Output:
	// spapi-getOrders 1/m burst 20
}
