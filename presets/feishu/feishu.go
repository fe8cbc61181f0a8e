// Package feishu is the table of limits of Feishu's open platform (飞书), and of
// Lark's: what one app may call, a custom bot may send and a tenant may use.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: feishu.Policies(feishu.Options{}),
//	}))}
//
// # Rows
//
//	row                limit            one budget for each        closed by
//	feishu-api-second  the tier, 50/s   app, tenant and API        a refusal, below
//	feishu-api-minute  the tier, 1000/m app, tenant and API
//	feishu-message     5/s              person or chat, tenant     230020
//	feishu-one-message none             message, tenant            230020, of its edits and replies
//	feishu-bot-second  5/s              custom bot                 a refusal, and 11232
//	feishu-bot-minute  100/m            custom bot
//	feishu-month       PerMonth         tenant; left out if 0
//
// A message of im/v1/messages goes to the receive_id of its body, a person or a chat. The bots of a chat
// share its limit.
//
// Both bounds of a tier hold. An API of [Options.APIs] has rows of its own, with
// its name behind theirs: "feishu-api-second GET /open-apis/im/v1/chats".
//
// # Refusals
//
// A 429, and on some old APIs a 400 with the code 99991400, closes the API for
// as many seconds as x-ogw-ratelimit-reset says, and for one if it says 0; for a
// minute, the longest window, if it does not say (inferred). It closes the shorter of the API's two
// rows, which is enough to stop it and comes back sooner.
//
// Ten 503 in a row with a Retry-After close the same row.
//
// 230020, with status 400, says that one person, chat or message has had enough, and closes that for a second
// (inferred: its limit is one of a second).
//
// 11232 means that the platform's bots are overloaded, which happens around full and half hours:
// better send at a different time. It closes the bot for a minute (inferred).
//
// # Not covered
//
// The tiers of most APIs: each API's page names its own. The refusal of a tenant
// that has used up its month: its code is not known. When the row itself is full,
// it is so for the rest of the month, so a request with a deadline is refused at once.
// How a minute of Feishu's begins is not known either; a sliding window is right
// for any.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: tiers, both bounds, bots, 11232, the headers and the code:
//     https://open.larkoffice.com/document/ukTMukTMukTM/uUzN04SN3QjL1cDN.md
//   - official: 400 on old APIs:
//     https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control.md
//   - official: messages to a person and to a chat:
//     https://open.feishu.cn/document/server-docs/im-v1/message/create, with the code 230020
//   - observed, in public code: 230020 for edits of one message that come too fast.
//   - official: the month, for June 2026 alone:
//     https://open.feishu.cn/document/platform-notices/platform-updates-/custom-app-api-call-limit.md
//   - from common use: Lark's host, the path that custom bots are sent to.
//   - inferred: which row a refusal closes, a minute without a stated time, and that apps share a person's limit
//     of messages, as they share a chat's.
package feishu

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/reqbody"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// BasicPerMonth is what all custom apps of a tenant on the basic plan may call
// together in a month. Feishu says it for June 2026 alone, "temporarily".
const BasicPerMonth = 1_000_000

// A Tier is what one app may call one API in one tenant. A bound of 0 is none.
type Tier struct {
	PerSecond int
	PerMinute int
}

// Options are what differs between accounts. The zero value is one app in one
// tenant of Feishu.
type Options struct {
	// App is the app's id. Not its token, which changes every two hours.
	// Defaults to "": all programs that share the store are one app.
	App string

	// Tenant is the id of the tenant that is called. Defaults to "": there is
	// only one.
	Tenant string

	// Caller says whose a request is, for a program that calls for several
	// apps or tenants. It replaces App and Tenant. Defaults to nil.
	Caller func(*http.Request) (app, tenant string)

	// APIs are the tiers of single APIs, by method and path:
	//
	//	"GET /open-apis/contact/v3/users/{user_id}": {PerSecond: 50, PerMinute: 1000}
	//
	// Unlisted requests share a budget if they share method, service and version: an API cannot be
	// told from a user's name in a path, and a budget for each user would allow too many requests.
	// Defaults to nil.
	APIs map[string]Tier

	// Tier is for APIs that are not listed. Defaults to 50 a second and 1,000
	// a minute.
	Tier Tier

	// PerMonth is how many calls a tenant may make in a month, such as [BasicPerMonth]. Defaults to
	// 0: not counted.
	PerMonth int

	// Metered says which requests the month counts; some APIs are free.
	// Defaults to nil: all.
	Metered func(*http.Request) bool

	// Host is a pattern of the API's hosts, in place of the default for Lark,
	// which is at open.larksuite.com, for a fake, a proxy or a server of one's
	// own. Defaults to "open.feishu.cn".
	Host string
}

var (
	beijing = time.FixedZone("UTC+8", 8*60*60)
	bots    = Tier{PerSecond: 5, PerMinute: 100}
)

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o.Host = cmp.Or(o.Host, "open.feishu.cn")
	o.Tier = cmp.Or(o.Tier, Tier{PerSecond: 50, PerMinute: 1000})
	app, tenant := caller.IDs(o.App, o.Tenant, o.Caller)

	rows := tier("api", "", o.Tier, throttle.Policy{
		Match: o.Host + "/open-apis/", Cost: o.unlisted,
		Key:    throttle.Join(app, tenant, throttle.Method, family),
		Answer: tablerow.IfCharged(o.unlisted, feedback.First(refused, tablerow.Outage())),
	})

	// The order of the rows must be the same in each run.
	for _, api := range slices.Sorted(maps.Keys(o.APIs)) {
		method, path := split(api)
		rows = append(rows, tier("api", " "+api, o.APIs[api], throttle.Policy{
			Match:  strings.TrimLeft(method+" "+o.Host+path, " "), // the method may be ""
			Key:    throttle.Join(app, tenant),
			Answer: feedback.First(refused, tablerow.Outage()),
		})...)
	}

	rows = append(rows, throttle.Policy{
		Name: "feishu-message", Match: "POST " + o.Host + messages, Key: throttle.Join(tenant, receiver), Cost: received,
		Limit: throttle.PerSecond(5), Answer: tablerow.IfCharged(received, messageRefused),
	}, throttle.Policy{
		Name: "feishu-one-message", Match: o.Host + messages + "/", Key: throttle.Join(tenant, message), Cost: ofMessage,
		Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(ofMessage, messageRefused),
	})

	rows = append(rows, tier("bot", "", bots, throttle.Policy{
		Match: "POST " + o.Host + botPath + "{bot}", Key: throttle.PathValue("bot"),
		Answer: feedback.First(refused, overloaded, tablerow.Outage()),
	})...)

	if o.PerMonth > 0 {
		rows = append(rows, throttle.Policy{
			Name: "feishu-month", Match: o.Host + "/open-apis/", Key: tenant, Cost: o.metered,
			Limit:  throttle.CalendarWindow(o.PerMonth, throttle.Month, beijing),
			Answer: feedback.LeaveOpen,
		})
	}

	return tablerow.Table(rows)
}

// tier returns copies of row for the bounds of a tier, of a second and of a minute, without a bound that is 0. Only the
// first copy keeps the row's Answer: closing one of them is enough to stop the API.
func tier(name, api string, t Tier, row throttle.Policy) (rows []throttle.Policy) {
	for _, bound := range []struct {
		name string
		n    int
		per  time.Duration
	}{
		{"second", t.PerSecond, time.Second},
		{"minute", t.PerMinute, time.Minute},
	} {
		if bound.n > 0 {
			row.Name = "feishu-" + name + "-" + bound.name + api
			row.Limit = throttle.SlidingWindow(bound.n, bound.per)
			rows = append(rows, row)
			row.Answer = feedback.LeaveOpen
		}
	}

	return rows
}

// metered is a [throttle.Policy.Cost]: 1 for a request that the month counts, and 0 for all others.
func (o Options) metered(r *http.Request) int {
	if o.Metered != nil && !o.Metered(r) {
		return 0
	}
	return 1
}

// receiver is a [throttle.Policy.Key]: whom a message goes to.
func receiver(r *http.Request) string { return reqbody.Member(r, "receive_id") }

// received is a [throttle.Policy.Cost]: 1 for a message whose receiver is known.
func received(r *http.Request) int {
	if receiver(r) == "" {
		return 0
	}
	return 1
}

// messages is the path of messages; the id of one follows.
const messages = "/open-apis/im/v1/messages"

// message is a [throttle.Policy.Key]: the id of the message that a request is about.
func message(r *http.Request) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(throttle.RawPath(r), messages+"/"), "/")
	return id
}

// ofMessage is a [throttle.Policy.Cost]: 1 for a request about one message.
func ofMessage(r *http.Request) int {
	if throttle.RawPath(r) == messages {
		return 0
	}
	return 1
}

// botPath is the beginning of the path of calls to custom bots; the bot's id follows.
const botPath = "/open-apis/bot/v2/hook/"

// unlisted is a [throttle.Policy.Cost] under the rows for APIs without rows of their own: 1 for such an API,
// and 0 for any other.
func (o Options) unlisted(r *http.Request) int {
	path := throttle.RawPath(r)

	// Each custom bot has a row of its own.
	if strings.HasPrefix(path, botPath) {
		return 0
	}

	// An API with a row of its own does not count here.
	for api := range o.APIs {
		method, template := split(api)
		if (method == "" || method == throttle.Method(r)) && fits(template, path) {
			return 0
		}
	}
	return 1
}

// family is a [throttle.Policy.Key]: the service and the version of the API, such as "im/v1" of
// "/open-apis/im/v1/messages".
func family(r *http.Request) string {
	service, rest, _ := strings.Cut(strings.TrimPrefix(throttle.RawPath(r), "/open-apis/"), "/")
	version, _, _ := strings.Cut(rest, "/")
	return service + "/" + version
}

// split parts "GET /path"; the method may be missing.
func split(api string) (method, path string) {
	if method, path, ok := strings.Cut(api, " "); ok {
		return method, strings.TrimSpace(path)
	}
	return "", api
}

// fits reports whether a path matches a template, where "{name}" stands for any segment.
func fits(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

// The penalties of Feishu's refusals.
var (
	refused = feedback.First(
		feedback.When{Status: []int{429}}.Then(until(time.Minute)),
		feedback.When{Status: []int{400}}.Then(feedback.Codes{
			Fields: []string{"code"},
			Lasts:  map[string]time.Duration{"99991400": time.Minute},
			End:    until(time.Minute),
		}.Answer),
	)

	// messageRefused is about one receiver, or about one message.
	messageRefused = feedback.When{Status: []int{400, 429}}.Then(feedback.Codes{
		Fields: []string{"code"},
		Lasts:  map[string]time.Duration{"230020": time.Second},
		End:    until(time.Second),
	}.Answer)

	overloaded = feedback.Codes{
		Fields: []string{"code"},
		Lasts:  map[string]time.Duration{"11232": time.Minute},
	}.Answer
)

// until returns a reader that closes the row until the end that a refusal states, or for a window if it states none. A
// refusal that states 0 closes it for its Retry-After, or a second.
func until(window time.Duration) feedback.Reader {
	return feedback.First(
		feedback.When{Header: map[string]string{"X-Ogw-Ratelimit-Reset": "0"}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Until(feedback.Headers{Reset: "X-Ogw-Ratelimit-Reset"}),
		feedback.RetryAfter(window),
	)
}
