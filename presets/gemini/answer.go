package gemini

import (
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// pacific is the zone in which a day ends, or nil on a machine without zone data.
var pacific = sync.OnceValue(func() *time.Location {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		return nil
	}
	return zone
})

// in returns a field of an error, which some endpoints put into a list.
func in(field string) []string { return []string{"error." + field, "0.error." + field} }

// named is the quota that a refusal names: a day's of any kind, or a minute's of tokens.
var named = regexp.MustCompile(`PerDay|Tokens.*PerMinute`)

// wait is for how long a refusal says that it lasts.
var wait = feedback.First(
	feedback.RetryAfter(0),
	feedback.Printed{Fields: in("details.*.retryDelay")}.Answer,
	feedback.Printed{Fields: in("details.*.metadata.quotaResetDelay")}.Answer,
	feedback.Printed{Fields: in("message"), As: feedback.Sentence}.Answer,
)

// tooMany are the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// quotaRefused is the penalty of the refusals that name a quota.
func quotaRefused(quota string, lasts time.Duration) feedback.Reader {
	return tooMany.Then(feedback.Codes{
		Fields: in("details.*.violations.*.quotaId"), Pattern: named,
		Lasts: map[string]time.Duration{quota: lasts}, End: wait,
	}.Answer)
}

// dayRefused is the penalty of the refusals that are about a day.
func dayRefused(resp *http.Response) throttle.Answer {
	a := quotaRefused("PerDay", time.Hour)(resp)
	if zone := pacific(); a.Close > 0 && zone != nil && wait(resp).Close == 0 {
		return feedback.UntilMidnight(zone)(resp)
	}
	return a
}

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		quotaRefused("PerDay", 0),
		tablerow.IfCharged(tokens, quotaRefused("Tokens*", 0)),
		tooMany.Then(feedback.First(wait, feedback.For(time.Second))),
		tablerow.Outage(),
	)
}

// sent are the tokens that were sent. A stream tells them in its events, or in the members of a list.
var sent = feedback.Amount{Fields: []string{"usageMetadata.promptTokenCount", "*.usageMetadata.promptTokenCount", "usage.prompt_tokens"}}

// settle is a [throttle.Policy.Answer] of costs. An answer that streams in JSON is left alone: it would be held
// until its first part has come. The row's Meter reads it.
var settle = feedback.When{Path: []string{"*:generateContent", "*/openai/*"}}.Then(sent.Cost)
