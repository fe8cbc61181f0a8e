// Package wecom is the table of limits of WeCom's server API (企业微信): of a company, an address, an
// application and a group robot.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: wecom.Policies(wecom.Options{}),
//	}))}
//
// # Rows
//
//	row                   limit           one budget for each    45009 closes it for
//	wecom-company-minute  10,000/m        company and API        a minute
//	wecom-company-hour    150,000/h       company and API
//	wecom-ip-minute       20,000/m        address and API
//	wecom-ip-hour         600,000/h       address and API
//	wecom-checkin         600/m           company                a minute
//	wecom-approval        600/m           company                a minute
//	wecom-ticket-company  400/h           company
//	wecom-ticket-app      100/h           application            an hour
//	wecom-app-day         200 × accounts  application            the rest of the day
//	wecom-group-minute    20,000/m        company                a minute
//	wecom-group-hour      300,000/h       company
//	wecom-robot           20/m            robot                  a minute
//	wecom-new-chats       1,000/day       company                the rest of the day
//	wecom-changed-chats   1,000/h         company                an hour
//	wecom-pictures-day    1,000/day       company                the rest of the day
//	wecom-pictures-month  3,000/31 days   company
//	wecom-new-members     3 × accounts    company, in 31 days    a day
//	wecom-domains         20/31 days      company                a day
//
// wecom-app-day and the two rows of groups count person-times: a message to 1,000 people costs
// 1,000. Messages and robots do not count under company and address.
//
// # Refusals
//
// WeCom refuses with status 200 and an errcode. 45009 is for frequency: what
// tripped a minute's limit is blocked for a minute, an hour's for an hour, a day's
// for the day. The answer says neither which window nor whose budget. So it
// closes the API for the company and for [Options.Blocked], and the address not
// at all: of the budgets that it may speak of, the narrower (inferred). Where all
// limits of an API have one window, that window counts.
//
// 45033 is for concurrency, and closes for a second what 45009 would have closed
// (inferred).
//
// Chats are chats of applications (appchat/create, appchat/update), pictures are permanent pictures
// (media/uploadimg), and a domain is a domain that agent/set sets. WeCom blocks for 30 days of no
// calendar, and does not say over which month it counts: any 31 days are within both (inferred). No
// penalty here exceeds a day: then one request asks again.
//
// A 429, which WeCom does not document, closes the row of 45009 for its Retry-After, or a second
// without one, and so do ten 503 in a row with a Retry-After.
//
// An application that has used up its day is closed for the rest of it, in
// Beijing: a request with a deadline before that is refused at once.
//
// # Not covered
//
// Messages that are dropped without an error: more than 30 messages a minute or 1,000 an hour to
// one member from one application, more than 200 a minute or 10,000 a day to one member in groups.
// Use a [throttle.Limiter] with the member as key. Blocks because of mistakes: ten wrong tokens in
// a minute on kf/sync_msg (a minute), 2,000 wrong arguments in an hour on gettoken (an hour).
// debug=1, 5 a minute.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: limits, and how long each window blocks:
//     https://developer.work.weixin.qq.com/document/path/90454
//   - observed: 45009 and 45033 with status 200:
//     https://developers.weixin.qq.com/community/develop/doc/000e843d6604b07015fcb500d51000,
//     https://developers.weixin.qq.com/community/personal/oCJUswwTEpFaQkIr4eTAmGeBGfeQ
//   - official (staff), on blocks because of mistakes:
//     https://developers.weixin.qq.com/community/enterprisewechat/doc/0006e047caca30ab50ec916195b800,
//     https://developers.weixin.qq.com/community/enterprisewechat/doc/0000c80533033826589c94f6356400
//   - official: the robot's 20 a minute: https://developer.work.weixin.qq.com/document/path/91770
//   - from common use: the host and the paths.
//   - inferred: whose budget 45009 closes, a second for 45033, and which row a 429 closes.
package wecom

import (
	"cmp"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/reqbody"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// What a service provider may call from one address; set them as IPPerMinute
// and IPPerHour.
const (
	ProviderIPPerMinute = 40_000
	ProviderIPPerHour   = 1_200_000
)

// Options are what differs between accounts. The zero value is one company that
// calls from one address with one application.
type Options struct {
	// App is the application's id. Not its token, which changes. Defaults to
	// "": all programs that share the store are one application.
	App string

	// Company is the company's id, the corpid. Defaults to "": there is only
	// one.
	Company string

	// Caller says whose a request is, for a program that calls for several
	// applications or companies. It replaces App and Company. Defaults to nil.
	Caller func(*http.Request) (app, company string)

	// Address is any name for the address that the requests come from. All
	// programs behind the same gateway or NAT use the same. Defaults to "":
	// all programs that share the store are behind one address.
	Address string

	// IPPerMinute and IPPerHour are what one address may call of one API.
	// Default to 20,000 and 600,000.
	IPPerMinute, IPPerHour int

	// Accounts is how many members the company may have; 200 times as many
	// people may be sent to in a day by one application, and three times as many
	// members may be created in a month. Defaults to 0: they are not counted, and
	// only a refusal closes the row.
	Accounts int

	// People returns how many people a message goes to. Defaults to nil: one.
	People func(*http.Request) int

	// Blocked is for how long 45009 closes an API: time.Hour is right for companies that
	// trip the hour. Defaults to a minute.
	Blocked time.Duration

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "qyapi.weixin.qq.com".
	Host string
}

const (
	appMessage   = "/cgi-bin/message/send"
	groupMessage = "/cgi-bin/appchat/send"
	robotMessage = "/cgi-bin/webhook/send"
)

// month is as long as WeCom's months may be.
const month = 31 * 24 * time.Hour

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o.IPPerMinute = cmp.Or(o.IPPerMinute, 20_000)
	o.IPPerHour = cmp.Or(o.IPPerHour, 600_000)
	o.Blocked = cmp.Or(o.Blocked, time.Minute)
	app, company := caller.IDs(o.App, o.Company, o.Caller)
	var (
		none       = feedback.LeaveOpen
		host       = cmp.Or(o.Host, "qyapi.weixin.qq.com")
		companyAPI = throttle.Join(company, throttle.RawPath)
		addressAPI = throttle.Join(caller.Always(o.Address), throttle.RawPath)
		companyApp = throttle.Join(company, app)
		blocked    = tablerow.IfCharged(o.base, refused(o.Blocked))
	)

	return tablerow.Table([]throttle.Policy{
		// Of these four rows a refusal closes only the first, which is enough to hold the requests.
		{Name: "wecom-company-minute", Match: host + "/cgi-bin/", Key: companyAPI, Cost: o.base,
			Limit: throttle.PerMinute(10_000), Answer: blocked},
		{Name: "wecom-company-hour", Match: host + "/cgi-bin/", Key: companyAPI, Cost: o.base,
			Limit: throttle.PerHour(150_000), Answer: none},
		{Name: "wecom-ip-minute", Match: host + "/cgi-bin/", Key: addressAPI, Cost: o.base,
			Limit: throttle.PerMinute(o.IPPerMinute), Answer: none},
		{Name: "wecom-ip-hour", Match: host + "/cgi-bin/", Key: addressAPI, Cost: o.base,
			Limit: throttle.PerHour(o.IPPerHour), Answer: none},

		{Name: "wecom-checkin", Match: host + "/cgi-bin/{service}/getcheckindata", Key: company,
			Limit: throttle.PerMinute(600), Answer: refused(time.Minute)},
		{Name: "wecom-approval", Match: host + "/cgi-bin/{service}/getapprovaldata", Key: company,
			Limit: throttle.PerMinute(600), Answer: refused(time.Minute)},
		{Name: "wecom-ticket-company", Match: host + "/cgi-bin/get_jsapi_ticket", Key: company,
			Limit: throttle.PerHour(400), Answer: none},
		{Name: "wecom-ticket-app", Match: host + "/cgi-bin/get_jsapi_ticket", Key: companyApp,
			Limit: throttle.PerHour(100), Answer: refused(time.Hour)},

		{Name: "wecom-app-day", Match: "POST " + host + appMessage, Key: companyApp, Cost: o.people,
			Limit: o.perDay(), Answer: usedUp()},
		{Name: "wecom-group-minute", Match: "POST " + host + groupMessage, Key: company, Cost: o.people,
			Limit: throttle.PerMinute(20_000), Answer: refused(time.Minute)},
		{Name: "wecom-group-hour", Match: "POST " + host + groupMessage, Key: company, Cost: o.people,
			Limit: throttle.PerHour(300_000), Answer: none},
		{Name: "wecom-robot", Match: "POST " + host + robotMessage, Key: throttle.Query("key"),
			Limit: throttle.PerMinute(20), Answer: refused(time.Minute)},

		{Name: "wecom-new-chats", Match: "POST " + host + "/cgi-bin/appchat/create", Key: company,
			Limit: throttle.CalendarWindow(1_000, throttle.Day, beijing), Answer: usedUp()},
		{Name: "wecom-changed-chats", Match: "POST " + host + "/cgi-bin/appchat/update", Key: company,
			Limit: throttle.PerHour(1_000), Answer: refused(time.Hour)},
		{Name: "wecom-pictures-day", Match: "POST " + host + "/cgi-bin/media/uploadimg", Key: company,
			Limit: throttle.CalendarWindow(1_000, throttle.Day, beijing), Answer: usedUp()},
		{Name: "wecom-pictures-month", Match: "POST " + host + "/cgi-bin/media/uploadimg", Key: company,
			Limit: throttle.SlidingWindow(3_000, month), Answer: none},
		{Name: "wecom-new-members", Match: "POST " + host + "/cgi-bin/user/create", Key: company,
			Limit: o.newMembers(), Answer: refused(throttle.MaxPenalty)},
		{Name: "wecom-domains", Match: "POST " + host + "/cgi-bin/agent/set", Key: company, Cost: domains,
			Limit: throttle.SlidingWindow(20, month), Answer: tablerow.IfCharged(domains, refused(throttle.MaxPenalty))},
	})
}

// newMembers is the limit of members that are created, or no limit if Accounts is not told.
func (o Options) newMembers() throttle.Limit {
	if o.Accounts == 0 {
		return throttle.Unlimited()
	}
	return throttle.SlidingWindow(3*o.Accounts, month)
}

// domains is the cost of a request that sets a trusted domain.
func domains(r *http.Request) int {
	if reqbody.Member(r, "redirect_domain") == "" {
		return 0
	}
	return 1
}

// base is the cost under the limits of company and address: 1, or 0 for messages, which do not count there.
func (o Options) base(r *http.Request) int {
	switch throttle.RawPath(r) {
	case appMessage, groupMessage, robotMessage:
		return 0
	}
	return 1
}

// people is a [throttle.Policy.Cost]: how many people a message goes to.
func (o Options) people(r *http.Request) int {
	if o.People == nil {
		return 1
	}
	return o.People(r)
}

// perDay is the limit of people to whom an application sends in a day, or no limit if Accounts is not told.
func (o Options) perDay() throttle.Limit {
	if o.Accounts == 0 {
		return throttle.Unlimited()
	}
	return throttle.CalendarWindow(200*o.Accounts, throttle.Day, beijing)
}

// The codes of WeCom's refusals, which have status 200.
const (
	frequency   = "45009"
	concurrency = "45033"
)

var beijing = time.FixedZone("UTC+8", 8*60*60)

// tooMany closes the row after a 429, which WeCom does not document: a gateway in front of it may send one.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))

// refused returns a reader that closes the row after a refusal, and after an outage. 45009 closes it for its Retry-After, or
// else for the time for which its window blocks.
func refused(blocked time.Duration) feedback.Reader {
	return feedback.First(
		feedback.Codes{
			Fields: []string{"errcode"},
			Lasts:  map[string]time.Duration{frequency: blocked, concurrency: time.Second},
			End:    feedback.RetryAfter(0),
		}.Answer,
		tooMany,
		tablerow.Outage(),
	)
}

// usedUp returns a reader for a row of a day: 45009 says that the day's quota is used up, and closes the row for its
// Retry-After or else until midnight in Beijing. Other refusals and outages close it as in the other rows.
func usedUp() feedback.Reader {
	return feedback.First(
		feedback.Codes{
			Fields: []string{"errcode"},
			Lasts:  map[string]time.Duration{frequency: 24 * time.Hour},
			End:    feedback.First(feedback.RetryAfter(0), feedback.UntilMidnight(beijing)),
		}.Answer,
		refused(0), // 45009 does not get here
	)
}
