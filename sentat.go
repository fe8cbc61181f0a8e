package throttle

import (
	"net/http"
	"time"
)

// SentAt returns when an answer was sent, by the clock of this machine and as far
// as anybody can tell: now, unless the answer was long on its way. That is known of
// an answer that a [Transport] shows to the functions of a policy, if it came more
// than a second after its request was handed on: then its Date counts, with a second
// for what Date cuts off, as long as that lies between the two. Any other Date is
// that of another clock and says nothing.
//
// What an answer says counts from then: the Transport takes the time that has
// passed since off the result of a [Policy.Penalty]. So refusals that were decided
// together and come late, one by one, all end together.
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
