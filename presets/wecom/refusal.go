package wecom

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// What WeCom answers, with status 200, instead of an answer.
const (
	frequency   = "45009"
	concurrency = "45033"
)

var beijing = time.FixedZone("UTC+8", 8*60*60)

// tooMany is the penalty of a 429, which WeCom does not document: a gateway in front of it may send one.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))

// refused is the penalty of a row whose window blocks for blocked.
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

// usedUp is the penalty of a day: 45009 says that the caller's quota is used up.
func usedUp() feedback.Reader {
	return feedback.First(
		feedback.Codes{
			Fields: []string{"errcode"},
			Lasts:  map[string]time.Duration{frequency: 24 * time.Hour},
			End:    feedback.First(feedback.RetryAfter(0), feedback.UntilMidnight(beijing)),
		}.Answer,
		refused(0),
	)
}
