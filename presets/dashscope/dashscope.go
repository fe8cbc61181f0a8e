// Package dashscope is the table of limits of Alibaba Cloud's Model Studio (DashScope, 百炼),
// which serves Qwen.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: dashscope.Policies(dashscope.Options{}),
//	}))}
//
// # Rows
//
//	dashscope-requests   requests a minute, for each account and model
//	dashscope-tokens     tokens a minute, sent and written, for each account and model
//
// All keys, users and workspaces of an account count together. What a model allows stands in its
// region's table of limits, and GET /api/v1/quotas says it: a row whose number is not told is
// unlimited until an answer closes it. A minute may be enforced second by second: [Options.Even].
//
// A request costs the tokens that it sends and the max_tokens that it asks for, until the usage in
// its answer states the actual tokens. Without max_tokens its answer is expected to have 1,500 tokens,
// and as many as the average when 64 answers of the model have told. A stream in OpenAI's form states its usage in its last
// event, if the request asks for it: stream_options.include_usage. A stream without usage, or a
// stream that is cut, costs its estimate, and at least a token for each event.
//
// The model is read from the request's body, as in package openai. Models whose numbers differ
// need a [throttle.Transport] each, with the same Store.
//
// # Refusals
//
// The code of a 429, or its error.code, names the limit.
//
//	Throttling.RateQuota, LimitRequests, limit_requests    dashscope-requests, 1m
//	Throttling.AllocationQuota, insufficient_quota         dashscope-tokens, 1m
//	Throttling.BurstRate, limit_burst_rate                 dashscope-requests, 1s
//	PrepaidBillOverdue, PostpaidBillOverdue,
//	CommodityNotPurchased                                  nothing
//	any other 429                                          dashscope-requests, 1s
//	503, ten in a row                                      dashscope-requests, Retry-After
//
// A Retry-After is obeyed, although none is documented. A limit recovers within a minute, says the
// page on limits, and a caller that goes on meanwhile is refused again. BurstRate means that
// requests came too suddenly though the minute had room: spread requests out by Even.
//
// insufficient_quota means tokens a minute here, and not money as with OpenAI. A bill that is
// overdue is about money: waiting does not help, so the caller gets the answer, and the next one
// too.
//
// # Not covered
//
// The limits of applications and workflows (100 a second each), of pictures, speech and tasks that
// run later, and which models share a limit.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the scope, the meaning of the three messages, second by second, recovery within a minute:
//     https://help.aliyun.com/en/model-studio/rate-limit,
//     https://alibabacloud.com/help/en/model-studio/rate-limit
//   - official: usage in the last event, with include_usage only: https://help.aliyun.com/zh/model-studio/stream
//   - official: GET /api/v1/quotas: https://www.alibabacloud.com/help/en/model-studio/list-quotas
//   - official, as public code quotes it in 2026-09: the codes of 429:
//     https://help.aliyun.com/zh/model-studio/error-code
//   - official: a caller that goes on is refused again: https://help.aliyun.com/zh/model-studio/flow-agent-rate-limiting
//   - observed: Throttling.AllocationQuota with the type insufficient_quota, back after a minute:
//     https://github.com/can1357/oh-my-pi/pull/8476
//   - from common use: the host, the names of fields in bodies, usage in each event of a stream in its own form.
//   - inferred: four bytes a token; that max_tokens counts until the usage is known; a second; that a 503 may have
//     a Retry-After (RFC 9110).
package dashscope

import (
	"cmp"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options hold a model's limits, and identify the account that they belong to. The zero value is
// one account, with models of unknown limits.
type Options struct {
	// Requests is how many requests a minute each model allows. Models that differ need
	// a transport of their own: see the package documentation. Defaults to 0: not told.
	Requests int

	// Tokens is how many tokens a minute each model allows. Defaults to 0: not told.
	Tokens int

	// Even spaces requests and tokens out, because 60 a minute may be enforced as 1 a
	// second. Defaults to false: at any pace within the minute.
	Even bool

	// Account is any name for the account. Not a key: all keys of an account share its
	// limits. Defaults to "": all programs that share the store are one account.
	Account string

	// Caller says for which account a request is, for a program that calls for several.
	// It replaces Account. Defaults to nil: Account.
	Caller func(*http.Request) (account string)

	// Model tells models, or groups of models that share their limits, apart. Defaults
	// to the field "model" of the body.
	Model func(*http.Request) string

	// Cost estimates the tokens of a request, or 0 for a request without tokens. An estimate above
	// Tokens counts as Tokens: Alibaba, not the estimate, should refuse requests that are too
	// large. Defaults to the estimate in the package documentation.
	Cost func(*http.Request) int

	// Host is a pattern of the API's hosts: "dashscope-intl.aliyuncs.com",
	// "{workspace}.{region}.maas.aliyuncs.com", a fake or a proxy. Defaults to
	// "dashscope.aliyuncs.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := "POST " + o.Host + "/"
	key := throttle.Join(caller.ID(o.Account, o.Caller), o.Model)
	tokens := llm.NewCosts(o.Tokens, o.Cost, llm.Sum, key)
	settled := tokens.Usage(usage, nil)

	// Without numbers the rows hold requests only after a refusal.
	perRequest, perToken := throttle.Unlimited(), throttle.Unlimited()
	if o.Requests > 0 {
		perRequest = llm.Requests(o.Requests, o.Even)
	}
	if o.Tokens > 0 {
		perToken = llm.Tokens(o.Tokens, o.Even)
	}

	return tablerow.Table([]throttle.Policy{
		{
			Name: "dashscope-requests", Match: match, Key: key,
			Limit: perRequest, Answer: requestsRefused(tokens.Cost),
		},
		{
			Name: "dashscope-tokens", Match: match, Key: key,
			Limit: perToken, Cost: tokens.Cost, Meter: settled.Meter,
			Answer: feedback.All(tokensRefused, settled.Settled(usage.Cost)),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	if o.Model == nil {
		o.Model = llm.Model
	}
	o.Host = cmp.Or(o.Host, "dashscope.aliyuncs.com")
	return o
}

// usage is the actual cost of a request.
var usage = feedback.Amount{Fields: []string{"usage.total_tokens"}}

// said returns a reader that closes the row after a 429 with one of some codes, in either form of the API.
func said(lasts map[string]time.Duration) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
		Fields: []string{"code", "error.code"}, Lasts: lasts, End: feedback.RetryAfter(0),
	}.Answer)
}

// tokensRefused closes the row after a refusal that is about tokens.
var tokensRefused = said(map[string]time.Duration{
	"Throttling.AllocationQuota": time.Minute, "insufficient_quota": time.Minute,
})

// noMoney recognises the 429s that are no refusals: they come until the bill is paid.
var noMoney = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
	Fields:     []string{"code", "error.code"},
	NotRefused: []string{"PrepaidBillOverdue", "PostpaidBillOverdue", "CommodityNotPurchased"},
}.Answer)

// requestsRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage. A
// refusal about tokens closes this row if the request costs no tokens, as an upload does: the row of tokens would not hold
// the next such request.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		noMoney,
		// The row of tokens closes for these codes.
		tablerow.IfCharged(tokens, said(map[string]time.Duration{
			"Throttling.AllocationQuota": 0, "insufficient_quota": 0,
		})),
		said(map[string]time.Duration{
			"Throttling.RateQuota": time.Minute, "LimitRequests": time.Minute, "limit_requests": time.Minute,
			"Throttling.BurstRate": time.Second, "limit_burst_rate": time.Second,
		}),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
