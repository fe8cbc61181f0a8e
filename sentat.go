package throttle

import (
	"net/http"
	"time"
)

// SentAt estimates when an answer was sent, by the clock of this machine. Usually
// that is now. It is earlier for an answer that a [Transport] shows to the functions
// of a policy more than a second after its request was handed on: then the answer's
// Date counts, plus the second that Date may cut off, if that lies between the two.
// Any other Date comes from another clock and is ignored.
//
// Penalties count from then: the Transport takes the time that has passed since off
// the result of a [Policy.Penalty]. So refusals that were decided together and come
// late, one by one, all end together.
func SentAt(resp *http.Response) time.Time {
	now := time.Now()
	if resp == nil || resp.Request == nil {
		return now
	}
	handed, slow := resp.Request.Context().Value(handedKey{}).(time.Time)
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if !slow || err != nil {
		return now
	}
	if sent := date.Add(time.Second); !sent.Before(handed) && sent.Before(now) {
		return sent
	}
	return now
}

// handedKey is the context key of when a request was handed on, if its answer took
// long.
type handedKey struct{}

// slow is how long an answer takes at least for which its Date tells anything: Date
// has whole seconds.
const slow = time.Second
