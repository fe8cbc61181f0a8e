package graph

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// tooMany are the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// some is for how long a refusal lasts that does not say.
const some = 10 * time.Second

// inFlight is the penalty of refusals for too many requests in flight. It lasts for lasts, unless
// end reads a duration.
func inFlight(lasts time.Duration, end feedback.Reader) feedback.Reader {
	return tooMany.Then(feedback.Codes{
		Fields: []string{"error.message"}, Pattern: regexp.MustCompile("MailboxConcurrency"),
		Lasts: map[string]time.Duration{"MailboxConcurrency": lasts}, End: end,
	}.Answer)
}

var concurrencyRefused = inFlight(some, feedback.RetryAfter(0))

// other is the penalty of any refusal.
var other = tooMany.Then(feedback.RetryAfter(some))

// mailboxRefused is the penalty of the refusals that are about a mailbox's other limits.
func mailboxRefused() feedback.Reader {
	return feedback.First(inFlight(0, nil), other, tablerow.Outage())
}

// serviceRefused is the penalty of the refusals of all other services.
func serviceRefused() feedback.Reader { return feedback.First(other, tablerow.Outage()) }
