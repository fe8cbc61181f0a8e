package llm

import (
	"net/http"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// A Bucket names the fields in which answers tell of a bucket: its size, what is left
// of it, and when it will be full again.
type Bucket struct{ Limit, Remaining, Reset string }

// Left is a [throttle.Policy.Answer] of what is left. The bucket fills all the time, so what is left is
// not all there is until the reset, when it is full, but only until as much has flowed
// in again.
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
