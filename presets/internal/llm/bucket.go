package llm

import (
	"net/http"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// A Bucket names the fields of a token bucket in an answer: its size, its level, and when it will
// be full.
type Bucket struct{ Limit, Remaining, Reset string }

// Left is a [throttle.Policy.Answer] of the bucket's level. The bucket fills continuously, so the
// level is not the limit until the bucket is full, but only until as much has flowed in.
func (b Bucket) Left(resp *http.Response) throttle.Answer {
	q, ok := feedback.Headers{Remaining: b.Remaining, Reset: b.Reset}.Left(resp).Left()
	if !ok {
		return throttle.Answer{}
	}

	size, err := strconv.ParseInt(resp.Header.Get(b.Limit), 10, 64)
	if missing := size - int64(q.Left); err == nil && missing > 0 {
		each := float64(q.Reset) / float64(missing)
		q.Reset = min(q.Reset, time.Duration(each*float64(max(q.Left, 1))))
	}
	return throttle.Answer{}.WithLeft(q)
}
