package wechat

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

var beijing = time.FixedZone("UTC+8", 8*60*60)

// What WeChat answers, with status 200, instead of an answer. Neither code ends the
// other's budget, so each has a row.
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

	// tooMany is the penalty of a 429, which WeChat does not document: a gateway in front of it may send one.
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))
)
