package wecom

import (
	"time"

	"github.com/fleetthrottle/throttle/feedback"
)

// What WeCom answers, with status 200, instead of an answer.
const (
	frequency   = "45009"
	concurrency = "45033"
)

var beijing = time.FixedZone("UTC+8", 8*60*60)

// refused is the penalty of a row whose window blocks for so long.
func refused(blocked time.Duration) feedback.Penalty {
	return feedback.Codes{
		Fields: []string{"errcode"},
		Lasts:  map[string]time.Duration{frequency: blocked, concurrency: time.Second},
	}.Penalty
}

// usedUp is the penalty of a day: 45009 says that the caller's quota is used up.
var usedUp = feedback.First(
	feedback.Codes{
		Fields: []string{"errcode"},
		Lasts:  map[string]time.Duration{frequency: 24 * time.Hour},
		End:    feedback.UntilMidnight(beijing),
	}.Penalty,
	refused(0),
)
