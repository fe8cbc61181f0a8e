// Package wechat is the table of limits of the server API of WeChat's Official
// Accounts (微信公众号): what an account may call of each API in a day.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: wechat.Policies(wechat.Options{Account: "wx-app-id"}),
//	}))}
//
// # Rows
//
//	row            limit                      one budget for each  closed by
//	wechat-day     none                       account and API      45009, until midnight in Beijing
//	wechat-minute  none                       account and API      45011, for a minute
//	wechat-login   none                       account and API      429 of a path under /sns
//	wechat-<api>   its number a day, below    account
//
// A row of the last kind is named after its API's path: /cgi-bin/user/info has
// wechat-user-info. What a newly registered account may call in a day, and a test
// account (测试号) that has [Options.Test]:
//
//	token 2,000 (200)              stable_token 500,000, and 10,000 a minute
//	menu/create 1,000 (100)        menu/get 10,000 (1,000)      menu/delete 1,000 (100)
//	groups/create 1,000 (100)      groups/get 1,000 (100)       groups/update 1,000 (100)
//	groups/members/update 100,000 (1,000)
//	media/upload 5,000 (500)       media/get 10,000 (1,000)     media/uploadnews 10
//	message/custom/send 500,000 (50,000)
//	message/mass/send 100          message/mass/sendall 100     message/mass/delete 10
//	message/template/send 100,000
//	qrcode/create 100,000 (10,000) user/get 500 (100)           user/info 5,000,000 (500,000)
//	user/info/updateremark 10,000
//
// Some of these rise when an account has more than 100,000, a million and ten million fans, by how much
// is not published. An account's own numbers stand in its console, and /cgi-bin/openapi/quota/get
// tells them: [Options.PerDay] and [Options.PerMinute] take them.
//
// # Refusals
//
// WeChat refuses with status 200 and an errcode. 45009 says that the day's calls of this API are
// used up. Days are calendar days in Beijing (inferred). A request with a deadline before midnight
// is refused at once. 45011 says that the minute's calls are used up; minutes are minutes of the
// clock, so a minute is enough.
//
// After a call of clear_quota, which the account has ten of in a month, the upstream
// begins anew. The rows do not know. Open wechat-day with "throttle reset" or
// [throttle.Limiter.Resume], and set the count of the rows with numbers to 0 with
// "throttle set-used … --to 0": a reset forgets no calls.
//
// -1 (busy), 45015 (too late to answer a user), 45047 (too many messages to one user without an
// answer), 48006 (clear_quota is used up) and all other codes close nothing. A 429, which WeChat
// does not document, closes wechat-minute for its Retry-After, or a second without one. Ten 503 in
// a row with a Retry-After do the same.
//
// # Not covered
//
// Paths under /sns, which users' own logins call: they have no limit for the account, and
// 45011 there is about one user. What one user may be sent, and how often a month
// all followers. Limits of third-party platforms (第三方平台) on their own; calls for an
// account count for that account. Whether both sendings to many share their 100.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers a day, 45009, clear_quota and 48006:
//     https://developers.weixin.qq.com/doc/service/Message_Management/API_Call_Limits.html
//   - official: template messages:
//     https://developers.weixin.qq.com/doc/service/en/guide/product/template_message/Template_Message_Interface.html
//   - official: numbers that rise with the fans:
//     https://developers.weixin.qq.com/doc/subscription/en/guide/dev/api/limit.html
//   - official: stable_token's numbers:
//     https://developers.weixin.qq.com/doc/service/api/base/api_getstableaccesstoken
//   - official: how to ask for an account's own numbers:
//     https://developers.weixin.qq.com/doc/service/api/apimanage/api_getapiquota
//   - official: the texts of 45009 and 45011:
//     https://developers.weixin.qq.com/doc/store/API/basics/commErrCode.html
//   - official (staff): calendar days and clock minutes:
//     https://developers.weixin.qq.com/community/develop/doc/0002242d2a4c68538eeeb4bb65b800
//   - observed: answers with 45009:
//     https://developers.weixin.qq.com/community/develop/doc/0004e86e828ea8e074df42d6656400,
//     45011: https://developers.weixin.qq.com/community/personal/oCJUswwkrNHFYZzk3og-YLw9R0Jg/answer,
//     45047: https://blog.csdn.net/luduntao/article/details/79976456
//   - from common use: the host, and the paths of the APIs that the official table names in words.
//   - inferred: Beijing; that media/uploadnews and other APIs without a number for test accounts are not
//     counted there.
package wechat

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what differs between accounts. The zero value is one newly registered
// account.
type Options struct {
	// Account is the account's id: its AppID, not its token, which changes. Defaults
	// to "": all programs that share the store call for one account.
	Account string

	// Caller says for which account a request is, for a program that calls for
	// several. It replaces Account. Defaults to nil: Account.
	Caller func(*http.Request) (account string)

	// Test says that the account is a test account, with its smaller numbers.
	// Defaults to false.
	Test bool

	// PerDay is how often an API may be called in a day of Beijing, by path:
	//
	//	"/cgi-bin/message/template/send": 200_000
	//
	// It comes before the list in the package documentation. 0 stands for an API that is not
	// counted: only a refusal closes it. Defaults to nil.
	PerDay map[string]int

	// PerMinute is the same for a minute. Defaults to nil.
	PerMinute map[string]int

	// Host is a pattern of the hosts that are meant: for a fake, a proxy, or one of
	// WeChat's other entrances, such as "sh.api.weixin.qq.com". Defaults to
	// "api.weixin.qq.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	api := throttle.Join(o.Caller, throttle.RawPath)

	// These rows count nothing. They hold requests only after a refusal.
	rows := []throttle.Policy{
		{Name: "wechat-day", Match: o.Host + "/", Key: api, Cost: counted,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(counted, dayUsedUp)},
		{Name: "wechat-minute", Match: o.Host + "/", Key: api, Cost: counted,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(counted, feedback.First(minuteUsedUp, tablerow.Outage()))},
		{Name: "wechat-login", Match: o.Host + "/sns/", Key: api,
			Limit: throttle.Unlimited(), Answer: feedback.First(tooMany, tablerow.Outage())},
	}

	// The rows above read the refusals, so the rows of the numbers only count.
	for path, n := range sorted(o.perDay()) {
		rows = append(rows, throttle.Policy{Name: name(path), Match: o.Host + path, Key: o.Caller,
			Limit: throttle.CalendarWindow(n, throttle.Day, beijing), Answer: feedback.LeaveOpen})
	}

	for path, n := range sorted(o.perMinute()) {
		rows = append(rows, throttle.Policy{Name: name(path) + "-minute", Match: o.Host + path, Key: o.Caller,
			Limit: throttle.PerMinute(n), Answer: feedback.LeaveOpen})
	}

	return tablerow.Table(rows)
}

// withDefaults returns o with the defaults of its zero fields. Caller is never nil in it.
func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "api.weixin.qq.com")
	o.Caller = caller.ID(o.Account, o.Caller)
	return o
}

// perDay returns the calls a day of each API, by path: the published numbers, and the numbers of o in their place.
func (o Options) perDay() map[string]int {
	if o.Test {
		return merged(testPerDay, o.PerDay)
	}
	return merged(perDay, o.PerDay)
}

// perMinute is the same for a minute.
func (o Options) perMinute() map[string]int { return merged(perMinute, o.PerMinute) }

// counted is the cost under an account's quotas: 1, or 0 for logins of users, which have no quota.
func counted(r *http.Request) int {
	if strings.HasPrefix(throttle.RawPath(r), "/sns/") {
		return 0
	}
	return 1
}

// name is the name of an API's row.
func name(path string) string {
	api := strings.Trim(strings.TrimPrefix(path, "/cgi-bin"), "/")
	return "wechat-" + strings.ReplaceAll(api, "/", "-")
}

var beijing = time.FixedZone("UTC+8", 8*60*60)

// The penalties of WeChat's refusals, which have status 200. The two codes are about two budgets, so each
// has a row.
var (
	dayUsedUp = feedback.Codes{
		Fields: []string{"errcode"},
		Lasts:  map[string]time.Duration{"45009": throttle.MaxPenalty},
		End:    feedback.UntilMidnight(beijing),
	}.Answer

	minuteUsedUp = feedback.First(
		feedback.Codes{
			Fields: []string{"errcode"},
			Lasts:  map[string]time.Duration{"45011": time.Minute},
			End:    feedback.RetryAfter(0),
		}.Answer,
		tooMany,
	)

	// tooMany closes the row after a 429, which WeChat does not document: a gateway in front of it may send one.
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))
)
