// Package stripe is the table of limits of Stripe's API: of an account by the second, and of each
// endpoint.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: stripe.Policies(stripe.Options{}),
//	}))}
//
// # Rows
//
//	row                       live    sandbox  one budget for each
//	stripe-account            100/s   25/s     account
//	stripe-endpoint           25/s    25/s     account and endpoint
//	stripe-search             20/s    20/s     account
//	stripe-files-read         20/s    20/s     account
//	stripe-files-write        20/s    20/s     account
//	stripe-payouts            15/s    15/s     account: payouts that are created
//	stripe-payouts-in-flight  30      30       account: the same, at a time
//	stripe-new-accounts       30/s    5/s      account: accounts that a platform creates
//	stripe-invoices-minute    10/m    10/m     account and subscription: invoices that are created for it
//	stripe-invoices-day       20/24h  20/24h   the same
//	stripe-quantity           200/h   200/h    account and subscription: updates of a quantity
//	stripe-payment-intent     1000/h  1000/h   account and PaymentIntent: its updates
//	stripe-meter-events       1000/s           account: usage that is reported, instead of the first two rows
//	stripe-object             none    none     account and path
//
// An endpoint is a method and a path without its ids: "/v1/customers/cus_9s6XKzkNRi" is the
// endpoint "/v1/customers/". A segment with a digit or a capital letter counts as an id (inferred).
// Live mode and sandboxes are counted separately.
//
// # Refusals
//
// Stripe refuses with a 429, and says in Stripe-Rate-Limited-Reason which limit it was:
//
//	global-rate, global-concurrency, and a reason that is not known    stripe-account
//	endpoint-rate, endpoint-concurrency                                stripe-endpoint
//	resource-specific                                                  stripe-object
//
// Each closes its row for a second (inferred), because no Retry-After is documented; if there is
// one it counts. How many may be in flight is published for payouts alone.
//
// A 429 with the code lock_timeout is no refusal: a second request holds the same object. With a
// Retry-After it closes stripe-object alone, and package retry sends the request again. Ten 503 in
// a row with a Retry-After close stripe-account.
//
// # Not covered
//
// Invoices that Stripe creates by itself when a subscription is updated, quantities that are updated by
// way of a subscription's item, and what other objects allow, but as stripe-object. Cards that are issued. How many reads there may be for each transaction in a month. Accounts that Stripe
// has given more or less than the page says: change the rows. Whose limits count a call with
// Stripe-Account: it counts here for the caller's account.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: numbers of account, endpoints, search, files, payouts, subscriptions, new accounts,
//     PaymentIntents and meter events, the reasons, lock_timeout: https://docs.stripe.com/rate-limits
//   - from common use: hosts and paths, and the fields of forms.
//   - inferred: which segments are ids; a second; that a 429 without a reason is about the account; that sandboxes
//     count meter events like other calls; that a day of invoices is any 24 hours.
package stripe

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/reqbody"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what differs between accounts. The zero value is one account in live
// mode.
type Options struct {
	// Account is the account's id, such as "acct_1032D82eZvKYlo2C". Not a key: all of
	// an account's keys share its limits. Defaults to "": all programs that share
	// the store call for one account.
	Account string

	// Caller says for which account a request is, for a program that calls for
	// several. It replaces Account. Defaults to nil: Account.
	Caller func(*http.Request) (account string)

	// Sandbox says that the keys belong to a sandbox, which has smaller numbers and budgets of its
	// own. Defaults to false: live mode.
	Sandbox bool

	// PerSecond is the account's limit, if Stripe has raised it. Defaults to 100, and in a sandbox
	// to 25.
	PerSecond int

	// Host is a pattern of the hosts that are meant: for a fake or a proxy. Defaults to
	// "*.stripe.com", for api.stripe.com and files.stripe.com.
	Host string
}

const (
	files       = "/v1/files"
	meterEvents = "/v1/billing/meter_events"
)

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	none := feedback.LeaveOpen
	rows := []throttle.Policy{
		{Name: "stripe-account", Match: o.Host + "/", Key: o.account, Cost: o.base,
			Limit: throttle.PerSecond(o.PerSecond), Answer: tablerow.IfCharged(o.base, accountRefused())},
		{Name: "stripe-endpoint", Match: o.Host + "/", Key: throttle.Join(o.account, endpoint), Cost: o.base,
			Limit: throttle.PerSecond(25), Answer: tablerow.IfCharged(o.base, endpointRefused)},
		{Name: "stripe-search", Match: "GET " + o.Host + "/v1/{resource}/search", Key: o.account,
			Limit: throttle.PerSecond(20), Answer: none},
		{Name: "stripe-files-read", Match: "GET " + o.Host + "/v1/", Key: o.account, Cost: ofFiles,
			Limit: throttle.PerSecond(20), Answer: none},
		{Name: "stripe-files-write", Match: "POST " + o.Host + files, Key: o.account,
			Limit: throttle.PerSecond(20), Answer: none},
		{Name: "stripe-payouts", Match: "POST " + o.Host + "/v1/payouts", Key: o.account,
			Limit: throttle.PerSecond(15), Answer: none},
		{Name: "stripe-payouts-in-flight", Match: "POST " + o.Host + "/v1/payouts", Key: o.account,
			Limit: throttle.Concurrency(30), Answer: none},
		{Name: "stripe-new-accounts", Match: "POST " + o.Host + "/v1/accounts", Key: o.account,
			Limit: throttle.PerSecond(o.newAccounts()), Answer: none},
		{Name: "stripe-invoices-minute", Match: "POST " + o.Host + "/v1/invoices", Key: throttle.Join(o.account, subscription), Cost: ofSubscription,
			Limit: throttle.PerMinute(10), Answer: none},
		{Name: "stripe-invoices-day", Match: "POST " + o.Host + "/v1/invoices", Key: throttle.Join(o.account, subscription), Cost: ofSubscription,
			Limit: throttle.SlidingWindow(20, 24*time.Hour), Answer: none},
		{Name: "stripe-quantity", Match: "POST " + o.Host + "/v1/subscriptions/{id}", Key: throttle.Join(o.account, throttle.PathValue("id")), Cost: quantities,
			Limit: throttle.PerHour(200), Answer: none},
		{Name: "stripe-payment-intent", Match: "POST " + o.Host + "/v1/payment_intents/{id}", Key: throttle.Join(o.account, throttle.PathValue("id")),
			Limit: throttle.PerHour(1_000), Answer: none},
		// The row of an object closes only after a refusal.
		{Name: "stripe-object", Match: o.Host + "/", Key: throttle.Join(o.account, throttle.RawPath),
			Limit: throttle.Unlimited(), Answer: objectRefused},
	}

	if !o.Sandbox {
		rows = append(rows, throttle.Policy{Name: "stripe-meter-events", Match: "POST " + o.Host + meterEvents, Key: o.account,
			Limit: throttle.PerSecond(1_000), Answer: feedback.First(anyRefused, tablerow.Outage())})
	}

	return tablerow.Table(rows)
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "*.stripe.com")
	if o.Sandbox {
		o.PerSecond = cmp.Or(o.PerSecond, 25)
	}
	o.PerSecond = cmp.Or(o.PerSecond, 100)
	o.Caller = caller.ID(o.Account, o.Caller)
	return o
}

// newAccounts is how many accounts a platform may create in a second.
func (o Options) newAccounts() int {
	if o.Sandbox {
		return 5
	}
	return 30
}

// ofFiles is a [throttle.Policy.Cost]: 1 for the list of files, and for what is below it.
func ofFiles(r *http.Request) int {
	if path := throttle.RawPath(r); path == files || strings.HasPrefix(path, files+"/") {
		return 1
	}
	return 0
}

// subscription is a [throttle.Policy.Key]: the subscription that an invoice is created for.
func subscription(r *http.Request) string { return reqbody.Form(r).Get("subscription") }

// ofSubscription is a [throttle.Policy.Cost]: 1 for an invoice of a subscription.
func ofSubscription(r *http.Request) int {
	if subscription(r) == "" {
		return 0
	}
	return 1
}

// quantities is a [throttle.Policy.Cost]: 1 for an update of a quantity, such as items[0][quantity]=5.
func quantities(r *http.Request) int {
	for name := range reqbody.Form(r) {
		if name == "quantity" || strings.HasSuffix(name, "[quantity]") {
			return 1
		}
	}
	return 0
}

// account is a [throttle.Policy.Key]: the account, with its sandbox apart.
func (o Options) account(r *http.Request) string {
	if o.Sandbox {
		return o.Caller(r) + " sandbox"
	}
	return o.Caller(r)
}

// base is a [throttle.Policy.Cost] under the limits of account and endpoint: 0 for live meter
// events, which those limits do not count, and 1 for all other requests.
func (o Options) base(r *http.Request) int {
	if !o.Sandbox && throttle.RawPath(r) == meterEvents {
		return 0
	}
	return 1
}

// endpoint is a [throttle.Policy.Key]: "POST /v1/payment_intents/*/confirm".
func endpoint(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/") // "", "v1", "payment_intents", id, "confirm"
	for i := 2; i < len(segments); i++ {
		// Only ids have digits or capitals.
		if strings.ContainsAny(segments[i], "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
			segments[i] = "*"
		}
	}
	return throttle.Method(r) + " " + strings.Join(segments, "/")
}

// reason is the field in which a 429 says which limit it is about.
const reason = "Stripe-Rate-Limited-Reason"

// wait closes the row for the Retry-After of a refusal, or a second without one.
var wait = feedback.RetryAfter(time.Second)

// refused returns a reader that closes the row after a 429 of one reason, which may end in "*".
func refused(why string) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}, Header: map[string]string{reason: why}}.Then(wait)
}

var (
	endpointRefused = refused("endpoint-*")

	// objectRefused closes the row after a refusal about one object, and after a lock_timeout with a Retry-After, which is
	// no refusal but asks to wait.
	objectRefused = feedback.First(refused("resource-specific"), feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(locked))

	// anyRefused closes the row of requests that have one limit for all reasons.
	anyRefused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
		not(objectRefused), lockTimeout, wait,
	))

	// lockTimeout recognises the 429 that is no refusal: a second request holds the object.
	lockTimeout = feedback.Codes{
		Fields: []string{"error.code"},
		Lasts:  map[string]time.Duration{"lock_timeout": 0},
	}.Answer
)

// locked closes the row of an object that a second request holds, if the answer states a duration.
func locked(resp *http.Response) throttle.Answer {
	if lockTimeout(resp).Verdict == throttle.VerdictNone {
		return throttle.Answer{}
	}
	return feedback.RetryAfter(0)(resp)
}

// accountRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage.
func accountRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
			// These refusals close rows of their own.
			not(endpointRefused), not(objectRefused),
			lockTimeout,
			wait,
		)),
		tablerow.Outage(),
	)
}

// not returns a reader that ends a [feedback.First] at an answer for which p closes a different row.
// It closes nothing itself.
func not(p feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		if p(resp).Close > 0 {
			return throttle.Refused(0)
		}
		return throttle.Answer{}
	}
}
