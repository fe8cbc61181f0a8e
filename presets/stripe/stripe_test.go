package stripe_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/stripe"
)

const (
	customer = "https://api.stripe.com/v1/customers/cus_9s6XKzkNRiz8i3"
	update   = "POST https://api.stripe.com/v1/payment_intents/pi_3MtwBwLkdIwHu7ix28a3tqPa"
	confirm  = update + "/confirm"
	search   = "https://api.stripe.com/v1/customers/search?query=email"
	account  = "POST https://api.stripe.com/v1/accounts"
	payout   = "POST https://api.stripe.com/v1/payouts"
	upload   = "POST https://files.stripe.com/v1/files"
	file     = "https://api.stripe.com/v1/files/file_1Mr4LDLkdIwHu7ixFCz0dZiH"
	allFiles = "https://api.stripe.com/v1/files?limit=3"
	event    = "POST https://api.stripe.com/v1/billing/meter_events"

	limited = `{"error":{"message":"Request rate limit exceeded.","type":"invalid_request_error","code":"rate_limit"}}`
)

func why(reason string, more ...string) presettest.Header {
	return presettest.JSON(append(more, "Stripe-Rate-Limited-Reason", reason)...)
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, stripe.Policies(stripe.Options{}), presettest.Case{Request: update, Status: 429, Answers: limited}, []presettest.Case{
		{Name: "the account's rate", Header: why("global-rate"), Closes: "stripe-account 1s"},
		{Name: "the account's requests in flight", Header: why("global-concurrency"), Closes: "stripe-account 1s"},
		{Name: "the endpoint's rate", Header: why("endpoint-rate"), Closes: "stripe-endpoint 1s"},
		{Name: "the endpoint's requests in flight", Header: why("endpoint-concurrency"), Closes: "stripe-endpoint 1s"},
		{Name: "the object", Header: why("resource-specific"), Closes: "stripe-object 1s"},
		{Name: "a new reason", Header: why("planet-rate"), Closes: "stripe-account 1s"},
		{Name: "no reason", Header: presettest.JSON(), Closes: "stripe-account 1s"},
		{Name: "a time is stated", Header: why("endpoint-rate", "Retry-After", "7"), Closes: "stripe-endpoint 7s"},
		{Name: "meter events", Request: event, Header: why("endpoint-rate"), Closes: "stripe-meter-events 1s"},
		{Name: "meter events, without a reason", Request: event, Header: presettest.JSON(), Closes: "stripe-meter-events 1s"},
		{Name: "meter events, the object", Request: event, Header: why("resource-specific"), Closes: "stripe-object 1s"},
	})
	presettest.Run(t, stripe.Policies(stripe.Options{Sandbox: true}), presettest.Case{Request: event, Status: 429, Answers: limited}, []presettest.Case{
		{Name: "meter events of a sandbox", Header: why("endpoint-rate"), Closes: "stripe-endpoint 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	const locked = `{"error":{"code":"lock_timeout","message":"This object cannot be accessed right now because another API request or Stripe process is currently accessing it."}}`
	presettest.Run(t, stripe.Policies(stripe.Options{}), presettest.Case{Request: update, Header: presettest.JSON()}, []presettest.Case{
		{Name: "success", Answers: `{"id":"pi_3","object":"payment_intent","description":"lock_timeout rate_limit"}`},
		{Name: "an object that is locked", Status: 429, Answers: locked},
		{Name: "an object that is locked, and asks to wait", Status: 429, Header: presettest.JSON("Retry-After", "7"), Answers: locked, Closes: "stripe-object 7s"},
		{Name: "meter events that are locked", Request: event, Status: 429, Answers: locked},
		{Name: "a reason without a 429", Header: why("global-rate"), Answers: `{}`},
		{Name: "a card that is declined", Status: 402, Answers: `{"error":{"type":"card_error","code":"card_declined"}}`},
		{Name: "no permission", Status: 403, Answers: `{"error":{"type":"invalid_request_error"}}`},
		{Name: "the same key twice", Status: 409, Answers: `{"error":{"type":"idempotency_error"}}`},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "5"), Answers: `{}`},
	})
}

func TestLimits(t *testing.T) {
	limits := func(o stripe.Options) string { return presettest.Limits(stripe.Policies(o)) }
	require.Contains(t, limits(stripe.Options{PerSecond: 500}), "stripe-account 500/s")
	require.Contains(t, limits(stripe.Options{PerSecond: 50, Sandbox: true}), "stripe-account 50/s")
}

func TestCosts(t *testing.T) {
	const base, object = "stripe-account 1, stripe-endpoint 1", ", stripe-object 1"
	live, sandbox := stripe.Policies(stripe.Options{}), stripe.Policies(stripe.Options{Sandbox: true})
	for request, want := range map[string]string{
		customer: base + object,
		search:   base + ", stripe-search 1" + object,
		upload:   base + ", stripe-files-write 1" + object,
		file:     base + ", stripe-files-read 1" + object,
		allFiles: base + ", stripe-files-read 1" + object,
		payout:   base + ", stripe-payouts 1, stripe-payouts-in-flight 1" + object,
		account:  base + ", stripe-new-accounts 1" + object,
		update:   base + ", stripe-payment-intent 1" + object,
		confirm:  base + object,
	} {
		require.Equal(t, want, presettest.Costs(t, live, presettest.Request(t, request)), request)
		require.Equal(t, want, presettest.Costs(t, sandbox, presettest.Request(t, request)), request)
	}
	require.Equal(t, "stripe-object 1, stripe-meter-events 1", presettest.Costs(t, live, presettest.Request(t, event)))
	require.Equal(t, base+object, presettest.Costs(t, sandbox, presettest.Request(t, event)))
}

// TestSubscriptions: what is counted for each subscription stands in the form that is sent.
func TestSubscriptions(t *testing.T) {
	policies := stripe.Policies(stripe.Options{})
	const base, object = "stripe-account 1, stripe-endpoint 1", ", stripe-object 1"
	const invoice, subscription = "POST https://api.stripe.com/v1/invoices", "POST https://api.stripe.com/v1/subscriptions/sub_1"
	for _, c := range []struct{ request, form, want string }{
		{invoice, "customer=cus_1&subscription=sub_1", ", stripe-invoices-minute 1, stripe-invoices-day 1"},
		{invoice, "customer=cus_1", ""},
		{invoice, "", ""},
		{subscription, "items%5B0%5D%5Bid%5D=si_1&items%5B0%5D%5Bquantity%5D=5", ", stripe-quantity 1"},
		{subscription, "quantity=5", ", stripe-quantity 1"},
		{subscription, "metadata%5Bbilling_quantity%5D=5&cancel_at_period_end=true", ""},
	} {
		require.Equal(t, base+c.want+object, presettest.Costs(t, policies, presettest.Request(t, c.request, c.form)), c.form)
	}
	of := func(id string) *http.Request { return presettest.Request(t, invoice, "subscription="+id) }
	require.True(t, presettest.Shared(t, policies, "stripe-invoices-day", of("sub_1"), of("sub_1")))
	require.False(t, presettest.Shared(t, policies, "stripe-invoices-day", of("sub_1"), of("sub_2")))
}

func TestBudgets(t *testing.T) {
	policies := stripe.Policies(stripe.Options{Caller: throttle.Header("Account")})
	require.Equal(t, "stripe-account Account, stripe-endpoint Account, stripe-payment-intent Account, stripe-object Account", presettest.Splits(t, policies, update, "Account"))

	request := func(line string) *http.Request { return presettest.Request(t, line) }
	shared := func(row, a, b string) bool { return presettest.Shared(t, policies, row, request(a), request(b)) }
	require.True(t, shared("stripe-endpoint", customer, "https://api.stripe.com/v1/customers/cus_NffrFeUfNV2Hib"), "another customer")
	require.False(t, shared("stripe-endpoint", customer, "DELETE "+customer), "another method")
	require.False(t, shared("stripe-endpoint", customer, "https://api.stripe.com/v1/customers"), "the list")
	require.False(t, shared("stripe-endpoint", customer, search), "the search")
	require.False(t, shared("stripe-endpoint", update, confirm), "an action")
	require.True(t, shared("stripe-endpoint", confirm, "POST https://api.stripe.com/v1/payment_intents/pi_1/confirm"), "an action of another object")
	require.True(t, shared("stripe-endpoint", "https://api.stripe.com/v1/coupons/SUMMER", "https://api.stripe.com/v1/coupons/Z4OV52SU"), "an id of one's own")
	require.False(t, shared("stripe-payment-intent", update, "POST https://api.stripe.com/v1/payment_intents/pi_2"), "another object")
	require.False(t, shared("stripe-object", update, confirm), "another path")
	require.True(t, shared("stripe-account", customer, upload), "another host")

	budget := func(o stripe.Options) string {
		return presettest.Budget(t, stripe.Policies(o), "stripe-account", request(customer))
	}
	require.NotEqual(t, budget(stripe.Options{Account: "acct_1"}), budget(stripe.Options{Account: "acct_2"}))
	require.NotEqual(t, budget(stripe.Options{}), budget(stripe.Options{Sandbox: true}))
}
