package zhipu

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

var beijing = time.FixedZone("UTC+8", 8*60*60)

// said is the penalty of the 429s with some codes.
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

// planRefused is the penalty of the refusals by the limits of a plan.
var planRefused = said(all(time.Hour, planCodes...), feedback.First(feedback.RetryAfter(0), again.Answer))

// noPace knows the 429s that are no refusals: they stay whatever one waits.
var noPace = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
	Fields:     []string{"error.code", "error.type"},
	NotRefused: []string{"1113", "1309", "1311", "1313", "1314", "1315"},
}.Answer)

// modelRefused is the penalty of all other refusals.
func modelRefused() feedback.Reader {
	return feedback.First(
		noPace,
		said(all(0, planCodes...), nil), // the plan's
		said(all(time.Hour, "1304"), feedback.RetryAfter(0)),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
