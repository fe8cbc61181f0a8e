// Package zhipu is the table of limits of Zhipu's API (BigModel, 智谱, Z.ai), which serves GLM.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: zhipu.Policies(zhipu.Options{}),
//	}))}
//
// # Rows
//
//	zhipu-model   requests in flight, for each account and model
//	zhipu-plan    a plan's limits in 5 hours, a week or a month: not published
//
// How many requests may be in flight depends on the account's level and on the model; the console
// shows it. A row whose number is not told is unlimited until an answer closes it. A request is in
// flight until its answer has been read to the end, a stream too.
//
// The model is read from the request's body, as in package openai. Models whose numbers differ
// need a [throttle.Transport] each, with the same Store.
//
// # Refusals
//
// All have status 429. The code in error.code says what one is about; in the form of Anthropic's
// API it stands in error.type.
//
//	1302, 1303, 1305, 1312            zhipu-model, 1s
//	1304, a day's calls               zhipu-model, 1h
//	1308, 1310, 1316 to 1319          zhipu-plan, until the time in the message, or 1h
//	1113, 1309, 1311, 1313 to 1315    nothing
//	any other 429                     zhipu-model, 1s
//	503, ten in a row                 zhipu-model, Retry-After
//
// A Retry-After is obeyed, although none is documented. The time in a message is in Beijing's zone.
// The codes that close nothing are no matter of pace: no money, a plan that has ended or lacks the
// model, or fair use. Waiting does not help there, so the caller gets the answer, and so does the
// next caller.
//
// # Not covered
//
// A bound on uploads: its answer has no code, and so closes zhipu-model for a second.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: for whom, in flight, 1302 and 1305: https://docs.bigmodel.cn/cn/api/rate-limit
//   - official: the codes, the time in the message: https://docs.bigmodel.cn/cn/faq/api-code
//   - official: uploads: https://docs.bigmodel.cn/cn/faq
//   - observed: the body of a refusal: https://github.com/yilewang/llm-for-zotero/issues/17,
//     https://github.com/kaitranntt/ccs/issues/402; the body with 1113:
//     https://github.com/continuedev/continue/issues/10296
//   - from common use: the hosts, the names of fields in bodies; error.type in the form of Anthropic's API.
//   - inferred: Beijing's time; a second; an hour; that an answer may have a Retry-After (RFC 9110).
package zhipu

import (
	"cmp"
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options hold a model's limits, and identify the account. The zero value is one account, with
// models of unknown limits.
type Options struct {
	// InFlight is how many requests each model allows at the same time. Models that
	// differ need a transport of their own: see the package documentation. Defaults
	// to 0: not told.
	InFlight int

	// Account is any name for the account. Not a key: all keys of an account share its
	// limits. Defaults to "": all programs that share the store are one account.
	Account string

	// Caller says for which account a request is, for a program that calls for several.
	// It replaces Account. Defaults to nil: Account.
	Caller func(*http.Request) (account string)

	// Model tells models apart. Defaults to the field "model" of the body.
	Model func(*http.Request) string

	// Host is a pattern of the API's hosts: "api.z.ai", a fake or a proxy. Defaults to
	// "open.bigmodel.cn".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := "POST " + o.Host + "/"
	account := caller.ID(o.Account, o.Caller)

	// Without a number the row holds requests only after a refusal.
	inFlight := throttle.Unlimited()
	if o.InFlight > 0 {
		inFlight = throttle.Concurrency(o.InFlight)
	}

	return tablerow.Table([]throttle.Policy{
		{
			Name: "zhipu-model", Match: match, Key: throttle.Join(account, o.Model),
			Limit: inFlight, Answer: modelRefused(),
		},
		{
			Name: "zhipu-plan", Match: match, Key: account,
			Limit: throttle.Unlimited(), Answer: planRefused,
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	if o.Model == nil {
		o.Model = llm.Model
	}
	o.Host = cmp.Or(o.Host, "open.bigmodel.cn")
	return o
}

var beijing = time.FixedZone("UTC+8", 8*60*60)

// said returns a reader that closes the row after a 429 with one of some codes.
func said(lasts map[string]time.Duration, end feedback.Reader) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
		Fields: []string{"error.code", "error.type"}, Lasts: lasts, End: end,
	}.Answer)
}

// all gives codes the same length.
func all(d time.Duration, codes ...string) map[string]time.Duration {
	lasts := make(map[string]time.Duration)
	for _, code := range codes {
		lasts[code] = d
	}
	return lasts
}

// planCodes are the refusals by the limits of a plan.
var planCodes = []string{"1308", "1310", "1316", "1317", "1318", "1319"}

// again is when a plan's limit is reset: "您的限额将在 2025-12-21 15:00:05 重置。".
var again = feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`),
	As:      feedback.At(time.DateTime, beijing),
}

// planRefused closes the row after a refusal by a limit of a plan.
var planRefused = said(all(time.Hour, planCodes...), feedback.First(feedback.RetryAfter(0), again.Answer))

// noPace recognises the 429s that are no refusals: they come however long a program waits.
var noPace = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
	Fields:     []string{"error.code", "error.type"},
	NotRefused: []string{"1113", "1309", "1311", "1313", "1314", "1315"},
}.Answer)

// modelRefused returns a reader that closes the row after a refusal that is not about a plan, and after an outage.
func modelRefused() feedback.Reader {
	return feedback.First(
		noPace,
		said(all(0, planCodes...), nil), // these close the row of the plan
		said(all(time.Hour, "1304"), feedback.RetryAfter(0)),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
