// Package binance is the table of limits of Binance's spot API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: binance.Policies(binance.Options{}),
//	}))}
//
// # Rows
//
//	binance-ip        a weight of 6,000 a minute for each address, whatever the API key
//	binance-requests  61,000 requests in 5 minutes for each address, whatever their weight
//
// Requests have weights, which stand in the documentation of each endpoint: supply them with
// [Options.Weight], or each request counts as one. X-MBX-USED-WEIGHT-1M, which comes with every
// answer, corrects estimates that are too low, and counts other programs at the address.
//
// # Refusals
//
//	429                     binance-ip
//	418, a ban              binance-ip
//	503, ten in a row       binance-ip
//
// A 429 or a 418 lasts for its Retry-After, or until the end that the message prints ("IP banned
// until 1620286253180"), or without either for a minute, and two for a 418; an outage lasts for the
// Retry-After of its 503s. A client that goes on after a 429 is banned, from 2 minutes up to 3 days. No penalty here exceeds throttle.MaxPenalty, a day:
// then one request asks again, and learns the rest.
//
// # Not covered
//
// The limits on orders, which are an account's. The other APIs, of futures (fapi)
// and wallets (sapi), which count by themselves. WebSockets.
//
// # Sources
//
// Facts as of 2026-11. Official: limits, headers, refusals, bans
// (https://developers.binance.com/docs/binance-spot-api-docs/rest-api/limits),
// minutes of the clock
// (https://developers.binance.com/docs/binance-spot-api-docs/websocket-api/rate-limits), RAW_REQUESTS
// (https://github.com/binance/binance-spot-api-docs/blob/master/enums.md).
// Observed: the message (https://github.com/rafa-guillermo/GAS-Binance-API-Test).
// From common use: the hosts, the gaps in coverage. Inferred: how long a refusal without a length
// lasts, and that a 503 may have a Retry-After (RFC 9110).
package binance

import (
	"cmp"
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what Binance may change, and where requests come from. The zero value
// is one address with the documented limit.
type Options struct {
	// PerMinute is the weight that an address may use in a minute. Defaults
	// to 6,000.
	PerMinute int

	// Weight returns the weight of a request, as its documentation says. Defaults to 1.
	Weight func(*http.Request) int

	// Address is any name for the address that the requests come from. All
	// programs behind the same gateway or NAT use the same. Defaults to "":
	// all programs that share the store are behind one address.
	Address string

	// Host is a pattern of the API's hosts, in place of the default for a fake, a proxy or
	// Binance's further hosts. Defaults to "{api}.binance.com": api.binance.com, api1.binance.com
	// and so on.
	Host string
}

// Policies returns the table of limits of Binance's spot API.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	used := feedback.Headers{
		Used: "X-MBX-USED-WEIGHT-1M", Size: o.PerMinute,
		Per: time.Minute, Clock: true,
	}

	address := caller.Always(o.Address)

	// Binance's minutes are minutes of Binance's clock and not of the store's, so FixedWindow would
	// let too many requests pass around their edges.
	return tablerow.Table([]throttle.Policy{
		{
			Name: "binance-ip", Match: o.Host + "/api/", Key: address, Cost: o.Weight,
			Limit: throttle.PerMinute(o.PerMinute), Answer: feedback.All(refused(), used.Left),
		},
		{
			Name: "binance-requests", Match: o.Host + "/api/", Key: address,
			Limit: throttle.SlidingWindow(61_000, 5*time.Minute), Answer: feedback.LeaveOpen,
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.PerMinute = cmp.Or(o.PerMinute, 6000)
	o.Host = cmp.Or(o.Host, "{api}.binance.com")
	return o
}

// bannedUntil is the end of a ban, in milliseconds since 1970.
var bannedUntil = feedback.Printed{
	Fields:  []string{"msg"},
	Pattern: regexp.MustCompile(`banned until (\d+)`),
}

// refused returns a reader that closes the row after a 429 or a ban (418): for the Retry-After, otherwise until the end that the
// message prints, and otherwise for a minute, or two for a ban. An outage closes the row for the Retry-After of its 503s alone.
func refused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{418}}.Then(feedback.First(
			feedback.RetryAfter(0), bannedUntil.Answer, feedback.For(2*time.Minute),
		)),
		feedback.When{Status: []int{429}}.Then(feedback.First(
			feedback.RetryAfter(0), bannedUntil.Answer, feedback.For(time.Minute),
		)),
		tablerow.Outage(),
	)
}
