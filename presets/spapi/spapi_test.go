package spapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/spapi"
)

const (
	host     = "https://sellingpartnerapi-na.amazon.com"
	orders   = host + "/orders/v0/orders"
	outbound = host + "/fba/outbound/2020-07-01/fulfillmentOrders"
)

type header = presettest.Header

const exceeded = `{"errors":[{"code":"QuotaExceeded","message":"You exceeded your quota for the requested resource.","details":""}]}`

func TestRefusals(t *testing.T) {
	json, said := presettest.JSON(), func(rate string) header { return presettest.JSON("x-amzn-RateLimit-Limit", rate) }
	presettest.Run(t, spapi.Policies(spapi.Options{}), presettest.Case{Request: orders, Status: 429, Header: json}, []presettest.Case{
		{Name: "getOrders", Answers: exceeded, Closes: "spapi-getOrders 1m"},
		{Name: "getOrders, at the rate that it says", Header: said("0.0167"), Answers: exceeded, Closes: "spapi-getOrders 59.880239521s"},
		{Name: "getOrder", Request: orders + "/902-3159896-1390916", Answers: exceeded, Closes: "spapi-getOrder 2s"},
		{Name: "getOrderItems", Request: orders + "/902-3159896-1390916/orderItems", Header: said("0.5"), Answers: exceeded,
			Closes: "spapi-getOrderItems 2s"},
		{Name: "createRestrictedDataToken", Request: "POST " + host + "/tokens/2021-03-01/restrictedDataToken", Answers: exceeded,
			Closes: "spapi-createRestrictedDataToken 1s"},
		{Name: "fulfillment outbound, at a plan of its own", Request: "PUT " + outbound + "/A-1/cancel", Header: said("8.0"), Answers: exceeded,
			Closes: "spapi-fulfillmentOutbound 125ms"},
		{Name: "a rate that cannot be", Header: said("0.0000000001"), Answers: exceeded, Closes: "spapi-getOrders 24h"},
		{Name: "a rate that is none", Header: said("NaN"), Answers: exceeded, Closes: "spapi-getOrders 1m"},
		{Name: "a rate that cannot be", Header: said("Inf"), Answers: exceeded, Closes: "spapi-getOrders 1m"},
		{Name: "Retry-After", Header: header{"Retry-After": "5", "x-amzn-RateLimit-Limit": "0.0167"}, Closes: "spapi-getOrders 5s"},
		{Name: "away, for a while, says one backend", Status: 503, Header: header{"Retry-After": "5"}},
	})
}

func TestNoRefusals(t *testing.T) {
	said := header{"Content-Type": "application/json", "x-amzn-RateLimit-Limit": "0.0167"}
	presettest.Run(t, spapi.Policies(spapi.Options{}), presettest.Case{Request: orders, Header: said}, []presettest.Case{
		{Name: "orders", Answers: `{"payload":{"Orders":[]}}`},
		{Name: "an answer that quotes a refusal", Answers: exceeded},
		{Name: "not allowed", Status: 403,
			Answers: `{"errors":[{"code":"Unauthorized","message":"Access to requested resource is denied.","details":""}]}`},
		{Name: "no such order", Request: orders + "/1", Status: 404, Answers: `{"errors":[{"code":"NotFound"}]}`},
		{Name: "away", Status: 503, Answers: `{"errors":[{"code":"ServiceUnavailable"}]}`},
		{Name: "an operation without a row", Request: host + "/feeds/2021-06-30/feeds", Status: 429, Answers: exceeded},
	})
}

func TestStreamsAreLeftAlone(t *testing.T) {
	require.Zero(t, presettest.LookedAt(t, spapi.Policies(spapi.Options{}), orders, 429, header{"Content-Type": "application/json"}, "{"))
}

func TestSharedBudgets(t *testing.T) {
	policies := spapi.Policies(spapi.Options{Caller: throttle.Header("X-Shop")})
	for _, c := range []struct {
		policy, a, b string
		same         bool
	}{
		{"spapi-getOrder", orders + "/1", orders + "/2", true},
		{"spapi-fulfillmentOutbound", "PUT " + outbound + "/A-1", "PUT " + outbound + "/A-2", true},
		{"spapi-fulfillmentOutbound", "PUT " + outbound + "/A-1", "GET " + outbound + "/A-1", false},
		{"spapi-fulfillmentOutbound", "PUT " + outbound + "/A-1/cancel", "PUT " + outbound + "/A-1", false},
	} {
		a, b, another := presettest.Request(t, c.a), presettest.Request(t, c.b), presettest.Request(t, c.a)
		require.Equal(t, c.same, presettest.Shared(t, policies, c.policy, a, b), "%+v", c)
		another.Header.Set("X-Shop", "another")
		require.False(t, presettest.Shared(t, policies, c.policy, a, another), "%+v", c)
	}
}

func TestOwnOperations(t *testing.T) {
	policies := spapi.Policies(spapi.Options{
		Operations: append(spapi.Usage(), spapi.Operation{
			Name: "createFeed", Match: "POST /feeds/2021-06-30/feeds", Limit: throttle.TokenBucket(1, 2*time.Minute, 15),
		}),
		Host: "sandbox.sellingpartnerapi-na.amazon.com",
	})
	feed := presettest.Request(t, "POST https://sandbox.sellingpartnerapi-na.amazon.com/feeds/2021-06-30/feeds")
	require.Equal(t, "spapi-createFeed", presettest.Rows(t, policies, feed))
	require.Empty(t, presettest.Rows(t, policies, presettest.Request(t, orders)))
}
