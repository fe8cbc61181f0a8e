// Package welink is the table of limits of the server API of Huawei Cloud WeLink.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: welink.Policies(welink.Options{}),
//	}))}
//
// # Rows
//
//	welink-ip           3,000 in 20 seconds, of an address
//	welink-api-second   40 a second, of an application for each API
//	welink-api-minute   1,500 a minute, of an application for each API
//
// An API is a method and a path, without the segments that hold a digit (inferred), except versions such as v1.
//
// # Refusals
//
// The code 48503, whatever the status, which is not published. It stands for all limits alike, and
// for one more, of an API for all its callers, whose number is not published; and it does not say
// for how long.
//
//	48503                welink-api-second, 1s
//	429                  welink-api-second, Retry-After, or 1s without one
//	503, ten in a row    welink-api-second, Retry-After
//
// A second is inferred. A limit that goes on refusing is asked more and more seldom.
//
// # Not covered
//
// What single APIs allow in a day, which their pages have. Other clouds than Huawei's own.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, 48503: https://support.huaweicloud.com/devg-welink/start-11.html
//   - official: the form of an answer, its code a text: https://support.huaweicloud.com/devg-welink/start-09.html
//   - from common use: the host and the paths.
//   - inferred: a second; which row 48503 closes; the extent of one API; that an answer may have a Retry-After (RFC 9110).
package welink

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are whose requests are counted together. The zero value is one application at one
// address.
type Options struct {
	// App is the application's client_id. Not its token, which changes. Defaults to "":
	// all programs that share the store are one application.
	App string

	// Caller says for which application a request is, for a program that calls for
	// several. It replaces App. Defaults to nil: App.
	Caller func(*http.Request) (app string)

	// Address is any name for the address that the requests come from. All programs
	// behind the same gateway or NAT use the same. Defaults to "": all programs that
	// share the store are behind one address.
	Address string

	// Endpoint tells APIs apart. Defaults to the path, without the segments that hold a
	// digit, except versions such as v1.
	Endpoint func(*http.Request) string

	// Host is a pattern of the API's hosts, in place of the default for a fake or a
	// proxy. Defaults to "open.welink.huaweicloud.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "open.welink.huaweicloud.com") + "/api/"
	if o.Endpoint == nil {
		o.Endpoint = endpoint
	}

	api := throttle.Join(caller.ID(o.App, o.Caller), throttle.Method, o.Endpoint)
	return tablerow.Table([]throttle.Policy{
		{
			Name: "welink-ip", Match: match, Key: caller.Always(o.Address),
			Limit: throttle.SlidingWindow(3_000, 20*time.Second), Answer: feedback.LeaveOpen,
		},
		{
			Name: "welink-api-second", Match: match, Key: api,
			Limit: throttle.PerSecond(40), Answer: refused(),
		},
		// A refusal closes the row above, which is enough to hold the requests.
		{
			Name: "welink-api-minute", Match: match, Key: api,
			Limit: throttle.PerMinute(1_500), Answer: feedback.LeaveOpen,
		},
	})
}

// version matches a segment that has a digit and is no id: a version.
var version = regexp.MustCompile(`^v\d+$`)

// endpoint is the default of [Options.Endpoint]: the path with "*" for each id.
func endpoint(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/")
	for i, s := range segments {
		// A segment with a digit is an id, unless it is a version.
		if strings.ContainsAny(s, "0123456789") && !version.MatchString(s) {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// refused returns a reader that closes the row after any refusal, and after an outage.
func refused() feedback.Reader {
	return feedback.First(
		feedback.Codes{
			Fields: []string{"code"}, Lasts: map[string]time.Duration{"48503": time.Second}, End: feedback.RetryAfter(0),
		}.Answer,
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
