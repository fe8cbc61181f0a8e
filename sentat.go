package throttle

import (
	"context"
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

// delay returns how long ago an answer was sent. If it took long it is given a Request
// that tells the functions of policies when that was handed on.
func (r *roundTrip) responseDelay(resp *http.Response) time.Duration {
	took := r.elapsed()
	if took <= slow {
		return 0
	}
	ctx := context.WithValue(r.req.Context(), handedKey{}, time.Now().Add(-took))
	resp.Request = r.req.WithContext(ctx)
	return time.Since(SentAt(resp))
}

// took is how long ago the request started: when it was handed to the base, or at its
// booked start if that was handed on early, to dial.
func (r *roundTrip) elapsed() time.Duration { return max(0, now()-max(r.handedAt, r.startAt)) }
