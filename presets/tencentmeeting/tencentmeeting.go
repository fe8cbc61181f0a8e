// Package tencentmeeting is the table of limits of Tencent Meeting's REST API (腾讯会议).
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: tencentmeeting.Policies(tencentmeeting.Options{}),
//	}))}
//
// # Rows
//
//	tencentmeeting-minute     300 a minute, of an app; of a user in a third party's app
//	tencentmeeting-day        200,000 a day, of an app; no limit in a third party's app
//	tencentmeeting-create     2,000 new meetings an hour, of a user
//	tencentmeeting-endpoint   the limits of the APIs for a whole account, of an app
//
// An API for a whole account may be called 100 times a minute; each API's page says whether it is
// for a whole account, so tencentmeeting-endpoint holds nothing until a refusal closes it. An
// endpoint is a method and a path, without the segments that hold a digit.
//
// The user who creates a meeting is the userid in the request's body.
//
// # Refusals
//
// The code in error_info.error_code, whatever the status, which is not published.
//
//	190310    tencentmeeting-minute, 1m
//	190311    tencentmeeting-day, the rest of the day in Beijing
//	190313    tencentmeeting-endpoint, 1m
//	500029    tencentmeeting-create, 10m
//
// A 429 without such a code closes tencentmeeting-minute for its Retry-After, or a second without
// one; ten 503s in a row close it for their Retry-After. How long a refusal lasts is not published:
// the durations are inferred from the windows.
//
// # Not covered
//
// Meetings of a month (500168), which depend on the account's purchases. The quality of a running
// meeting, 30 a minute for each (500046).
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers and the codes: https://cloud.tencent.com/document/product/1095/105276
//   - official: 400 and 500 are errors, error_info: https://cloud.tencent.com/document/product/1095/43704
//   - from common use: the host and the paths, userid in the body of POST /v1/meetings.
//   - inferred: the lengths; Beijing's day; which segments of a path are ids.
package tencentmeeting

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/reqbody"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what differs between apps. The zero value is one app that a company has built for
// itself.
type Options struct {
	// ThirdParty says that the app is a third party's, which is counted by user. Name
	// the users by User or Caller then. Defaults to false.
	ThirdParty bool

	// PerMinute is how many calls a minute are allowed. Defaults to 300.
	PerMinute int

	// PerDay is how many calls a day are allowed to an app that is no third party's.
	// Defaults to 200,000.
	PerDay int

	// App is the app's id. Defaults to "": all programs that share the store are one
	// app.
	App string

	// User is the id of the user for whom requests are. Defaults to "": only the user
	// who creates a meeting is known, by the body.
	User string

	// Caller says whose a request is, for a program that calls for several apps or
	// users. It replaces App and User. Defaults to nil.
	Caller func(*http.Request) (app, user string)

	// Host is a pattern of the API's hosts, in place of the default for a fake or a
	// proxy. Defaults to "api.meeting.qq.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	host := cmp.Or(o.Host, "api.meeting.qq.com")
	match := host + "/v1/"
	app, user := caller.IDs(o.App, o.User, o.Caller)
	counted := app
	perDay := throttle.CalendarWindow(cmp.Or(o.PerDay, 200_000), throttle.Day, beijing)

	// Third-party apps are counted by user, and have no limit of a day.
	if o.ThirdParty {
		counted = throttle.Join(app, user)
		perDay = throttle.Unlimited()
	}

	creator := caller.Or(user, ofBody)
	creates := func(r *http.Request) int { return min(1, len(creator(r))) } // 1 if the creator is known
	return tablerow.Table([]throttle.Policy{
		{
			Name: "tencentmeeting-minute", Match: match, Key: counted,
			Limit: throttle.PerMinute(cmp.Or(o.PerMinute, 300)), Answer: minuteRefused(),
		},
		{
			Name: "tencentmeeting-day", Match: match, Key: app,
			Limit: perDay, Answer: dayRefused,
		},
		{
			Name: "tencentmeeting-create", Match: "POST " + match + "meetings", Key: throttle.Join(app, creator), Cost: creates,
			Limit: throttle.PerHour(2_000), Answer: tablerow.IfCharged(creates, createRefused),
		},
		{
			Name: "tencentmeeting-endpoint", Match: match, Key: throttle.Join(app, throttle.Method, endpoint),
			Limit: throttle.Unlimited(), Answer: endpointRefused,
		},
	})
}

// endpoint is a [throttle.Policy.Key]: the path without its ids, which are the segments behind
// the version that hold a digit.
func endpoint(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/") // "", "v1", …
	for i, s := range segments {
		if i > 1 && strings.ContainsAny(s, "0123456789") {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// ofBody is the member "userid" of a body in JSON, if it is a text in the first 64 KB, or "".
func ofBody(r *http.Request) (user string) {
	reqbody.Members(r, 64<<10, func(json *jsonscan.Scanner, member []byte) bool {
		if string(member) != "userid" || json.Peek() != '"' {
			return json.Skip()
		}
		user, _ = json.Scalar()
		return false
	})

	return user
}

var beijing = time.FixedZone("UTC+8", 8*60*60)

// said returns a reader that closes the row after an answer with a code: for its Retry-After, otherwise for what the first
// reader of end says, and otherwise for lasts. A lasts of 0 closes nothing.
func said(code string, lasts time.Duration, end ...feedback.Reader) feedback.Reader {
	return feedback.Codes{
		Fields: []string{"error_info.error_code"}, Lasts: map[string]time.Duration{code: lasts},
		End: feedback.First(feedback.RetryAfter(0), feedback.First(end...)),
	}.Answer
}

var (
	dayRefused      = said("190311", 24*time.Hour, feedback.UntilMidnight(beijing))
	endpointRefused = said("190313", time.Minute)
	createRefused   = said("500029", 10*time.Minute)
)

// minuteRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage.
func minuteRefused() feedback.Reader {
	return feedback.First(
		said("190310", time.Minute),
		said("1903*", 0), // a refusal of a different row
		said("500029", 0),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
