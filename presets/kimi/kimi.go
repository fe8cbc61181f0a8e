// Package kimi is the table of limits of Moonshot's Kimi API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: kimi.Policies(kimi.Options{Tier: kimi.Tier1}),
//	}))}
//
// # Rows
//
//	kimi-concurrency   requests in flight
//	kimi-requests      requests a minute
//	kimi-tokens        tokens a minute
//	kimi-day           tokens a day, in the lowest tier only
//
// Each is for an account, whatever the key and the model: all models share the limits. The numbers
// of the tiers, which depend on what an account has paid in, are in [Tier].
//
// A request costs the tokens that it sends and the max_tokens that it asks for, whatever the answer
// writes: Kimi counts alike. Kimi does not publish how it counts a request without max_tokens: its answer
// is expected to have 1,500 tokens, and as many as the average when 64 answers have told. Set max_tokens,
// or [Options.Cost].
//
// The usage in the answer, and in the last event of a stream, puts right how many tokens were sent. Without max_tokens the
// request costs all tokens that the usage has. A stream that is cut costs its estimate, and a token for each event at least.
//
// # Refusals
//
// The error.type of a 429 names its cause, and its message the limit.
//
//	rate_limit_reached_error, concurrency         kimi-concurrency
//	rate_limit_reached_error, TPM                 kimi-tokens
//	rate_limit_reached_error, TPD                 kimi-day
//	exceeded_current_quota_error                  nothing
//	any other 429: RPM, engine_overloaded_error   kimi-requests
//	503, ten in a row                             kimi-requests
//
// exceeded_current_quota_error is about money and not about pace. Waiting does not help, and a
// budget that is closed would still be closed when the bill is paid: so the caller gets the
// answer, and the next one too.
//
// A refusal lasts for its Retry-After, or as long as the message says ("please try again after 1
// seconds"). Otherwise a day is closed for an hour, and any other row for a second (inferred).
//
// X-RateLimit-Remaining lowers kimi-requests if other programs use the account.
//
// # Not covered
//
// Limits of projects of an organization, of searches and of files. The length of a day: kimi-day is
// any 24 hours. Kimi's subscriptions for coding, on a different host.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the tiers: https://platform.kimi.com/docs/pricing/limits.md,
//     https://platform.moonshot.ai/docs/pricing/limits
//   - official: for whom, all models together, max_tokens counts whatever is written:
//     https://platform.moonshot.cn/docs/introduction
//   - official: usage in a stream's last choice: https://platform.moonshot.cn/docs/api/chat
//   - official: 429, the X-RateLimit fields: https://www.kimi.com/help/kimi-api/api-rate-limits
//   - observed: the messages: https://github.com/LLM-Red-Team/kimi-cc/issues/16,
//     https://github.com/LLM-Red-Team/kimi-cc/issues/41, https://github.com/MoonshotAI/kimi-cli/issues/1599
//   - observed, in public code: exceeded_current_quota_error and engine_overloaded_error, with 429.
//   - from common use: the hosts, the names of fields in bodies.
//   - inferred: four bytes a token; the durations where nothing is said; that the remaining quota is of requests; that
//     a 503 may have a Retry-After (RFC 9110).
package kimi

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

// A Tier is the limits of an account, by the amount that it has paid in.
type Tier struct {
	InFlight  int // requests
	PerMinute int // requests
	Tokens    int // a minute
	DayTokens int // a day; 0 means no such limit
}

// The tiers.
var (
	Tier0 = Tier{InFlight: 1, PerMinute: 3, Tokens: 500_000, DayTokens: 1_500_000}
	Tier1 = Tier{InFlight: 50, PerMinute: 200, Tokens: 2_000_000}
	Tier2 = Tier{InFlight: 100, PerMinute: 500, Tokens: 3_000_000}
	Tier3 = Tier{InFlight: 200, PerMinute: 5_000, Tokens: 3_000_000}
	Tier4 = Tier{InFlight: 400, PerMinute: 5_000, Tokens: 4_000_000}
	Tier5 = Tier{InFlight: 1_000, PerMinute: 10_000, Tokens: 5_000_000}
)

// Options are what an account has been given, and whose requests are counted together. The
// zero value is one account of the lowest tier.
type Options struct {
	// Tier of the account. Accounts of different tiers need a transport each.
	// Defaults to [Tier0].
	Tier Tier

	// Account is any name for the account. Not a key: all keys of an account share
	// its limits. Defaults to "": all programs that share the store are one account.
	Account string

	// Caller says for which account a request is, for a program that calls for
	// several. It replaces Account. Defaults to nil: Account.
	Caller func(*http.Request) (account string)

	// Cost is how many tokens Kimi counts for a request, or 0 for a request without tokens. A cost
	// above the limit of a minute counts as the limit: Kimi, not the estimate, should refuse
	// requests that are too large. Answers do not change the cost. Defaults to a quarter of the
	// body's length, plus max_tokens or an average answer, until the usage is known.
	Cost func(*http.Request) int

	// Host is a pattern of the API's hosts, in place of the default for a fake, a proxy or
	// a server of one's own. Its wildcard {land} tells the accounts of the two hosts
	// apart. Defaults to "api.moonshot.{land}": api.moonshot.cn and api.moonshot.ai.
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := "POST " + o.Host + "/"
	key := throttle.Join(caller.ID(o.Account, o.Caller), throttle.PathValue("land"))

	// An answer's request has no value for the wildcard {land}, so the costs tell the accounts apart by the host.
	tokens := llm.NewCosts(o.Tier.Tokens, o.Cost, llm.Sum, throttle.Join(caller.ID(o.Account, o.Caller), throttle.Host))

	// A program's own Cost is final, so no meter settles it. Only the row of a minute learns: from each answer once.
	var minute, day feedback.Meter
	if o.Cost == nil {
		minute, day = meter(tokens, true), meter(tokens, false)
	}

	return tablerow.Table([]throttle.Policy{
		{
			Name: "kimi-concurrency", Match: match, Key: key,
			Limit: throttle.Concurrency(o.Tier.InFlight), Answer: reached("concurrency", time.Second),
		},
		{
			Name: "kimi-requests", Match: match, Key: key,
			Limit: throttle.PerMinute(o.Tier.PerMinute), Answer: feedback.All(requestsRefused(tokens.Cost), left.Left),
		},
		{
			Name: "kimi-tokens", Match: match, Key: key,
			Limit: throttle.PerMinute(o.Tier.Tokens), Cost: tokens.Cost, Meter: minute, Answer: reached("TPM", time.Second),
		},
		{
			Name: "kimi-day", Match: match, Key: key,
			Limit: o.Tier.day(), Cost: tokens.Cost, Meter: day, Answer: reached("TPD", time.Hour),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.Tier = cmp.Or(o.Tier, Tier0)
	o.Host = cmp.Or(o.Host, "api.moonshot.{land}")
	return o
}

// day is the limit of a day, or no limit in a tier without one.
func (t Tier) day() throttle.Limit {
	if t.DayTokens == 0 {
		return throttle.Unlimited()
	}
	return throttle.SlidingWindow(t.DayTokens, 24*time.Hour)
}

// The usage of a request. A stream has it in its last choice, and some have it once more beside the choices.
var (
	sent  = feedback.Amount{Fields: []string{"usage.prompt_tokens", "choices.*.usage.prompt_tokens"}}
	total = feedback.Amount{Fields: []string{"usage.total_tokens", "choices.*.usage.total_tokens"}}
)

// meter returns a meter of the tokens that a request has cost: the tokens sent, and the request's max_tokens, which Kimi
// counts whole. Without max_tokens Kimi counts an unknown default: then the meter reads the tokens sent and written, and
// tokens learns from them if learns is true.
func meter(tokens *llm.Costs, learns bool) feedback.Meter {
	return func(resp *http.Response) throttle.Meter {
		if resp.Request == nil {
			return nil
		}

		reserved := llm.Reserved(resp.Request)
		learn := func(int, time.Duration) {}
		u := llm.Usage{Told: llm.Told(sent), Booked: tokens.Cost}
		u.Count = func(*http.Request) llm.Count {
			return func(used int, inFlight time.Duration) int { // used is what u.Told has read
				learn(used, inFlight)
				return tokens.AtMost(used + reserved)
			}
		}

		if reserved == 0 {
			u.Told = llm.Told(total)
		}
		if reserved == 0 && learns {
			learn, u.Untold = tokens.Learn(resp.Request), tokens.Untold
		}
		return u.Meter(resp)
	}
}

// left is the remaining requests of a minute.
var left = feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}

// about is the limit that a refusal's message names.
var about = regexp.MustCompile(`concurrency|TPM|TPD`)

// again is when to try again: "please try again after 1 seconds".
var again = feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`try again after (\d+) seconds?`),
	As:      feedback.After(time.Second),
}

// wait closes the row for as long as a refusal says. It says nothing if the refusal states no time.
var wait = feedback.First(feedback.RetryAfter(0), again.Answer)

// tooMany recognises the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// reached returns a reader that closes the row after a refusal that names a limit, for the time that it states or else for
// lasts. A lasts of 0 closes nothing.
func reached(limit string, lasts time.Duration) feedback.Reader {
	return tooMany.Then(feedback.Codes{
		Fields: []string{"error.message"}, Pattern: about,
		Lasts: map[string]time.Duration{limit: lasts}, End: wait,
	}.Answer)
}

// noMoney recognises the 429 that is no refusal: it comes until the bill is paid.
var noMoney = tooMany.Then(feedback.Codes{
	Fields:     []string{"error.type", "error.code"},
	NotRefused: []string{"exceeded_current_quota_error"},
}.Answer)

// requestsRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage. A
// request that is no JSON, such as an upload, costs no tokens. The row of tokens would not hold the next such request, so its
// refusals about tokens close this row.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		noMoney,
		// These refusals close the rows of slots and tokens. A length of 0 closes nothing, and ends the search.
		reached("concurrency", 0),
		tablerow.IfCharged(tokens, reached("TPM", 0)),
		tablerow.IfCharged(tokens, reached("TPD", 0)),
		tooMany.Then(feedback.First(wait, feedback.For(time.Second))),
		tablerow.Outage(),
	)
}
