package throttle

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/dialect"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// OutageAnswers is how many answers in a row must be a 503 before the upstream counts
// as down. Fewer may come from one backend behind its load balancer: if a third of
// the answers are a 503, one run of ten comes in 60,000 answers.
const OutageAnswers = 10

// InARow returns a [Policy.Penalty] that returns what p returns, but 0 as long as fewer than n
// answers in a row had a p above 0. It is for refusals that one backend of many may send: until
// n of them came in a row only the caller of each waits. It counts the answers in this
// program, so it must see the good answers, too. It is safe for concurrent use.
func InARow(n int, p func(*http.Response) time.Duration) func(*http.Response) time.Duration {
	row := new(answerRow)
	return func(resp *http.Response) time.Duration { return row.count(n, p(resp)) }
}

// An answerRow counts how many answers in a row were worth a penalty.
type answerRow struct{ length atomic.Int64 }

// count takes in an answer that p gives a penalty of d, and returns the penalty that counts: d if
// d is 0 or less, or if the answer is at least the n-th in a row with a penalty; else 0.
func (r *answerRow) count(n int, d time.Duration) time.Duration {
	if d <= 0 {
		r.end()
		return d
	}
	if r.length.Add(1) < int64(n) {
		return 0
	}
	return d
}

// end takes in an answer that was worth no penalty: the row ends.
func (r *answerRow) end() {
	if r.length.Load() != 0 { // so that good answers do not all write to one place in memory
		r.length.Store(0)
	}
}

// A defaultPenalty is the penalty of a policy that sets none: what [RetryAfter] returns, but 0 for
// a 503 that is not at least the last of [OutageAnswers] in a row.
type defaultPenalty struct{ outage answerRow }

// penalty is a [Policy.Penalty].
func (p *defaultPenalty) penalty(resp *http.Response) time.Duration {
	if resp.StatusCode == http.StatusServiceUnavailable {
		return p.outage.count(OutageAnswers, RetryAfter(resp))
	}
	p.outage.end()
	return RetryAfter(resp)
}

const (
	// DefaultRetryAfter is what [RetryAfter] returns for a 429 that does not say,
	// in any form that it can read, how long to stay away.
	DefaultRetryAfter = time.Second

	// MaxRetryAfter caps [RetryAfter]. Servers have sent days, and seconds
	// since 1970 in place of a delay. A [Policy.Penalty] that knows better
	// may return more, up to [MaxPenalty].
	MaxRetryAfter = time.Hour
)

// RetryAfter is the default [Policy.Penalty]: how long a 429 (Too Many
// Requests) or 503 (Service Unavailable) asks to stay away in its Retry-After
// field, at most [MaxRetryAfter]. Any other answer, and nil, is 0.
//
// The field may hold seconds, decimals too; a date of HTTP, of mail or of ISO 8601;
// seconds, milliseconds, microseconds or nanoseconds since 1970; a Go duration, "6m0s",
// or "30 seconds". A moment is compared with the answer's own Date and with the clock
// of this machine, and the shorter time counts, so that no single clock can close a
// budget for hours. A moment in whole seconds gets another second, and a moment in
// minutes another minute, because that much may have been cut off. Of several
// lines the longest counts.
//
// "0" is a legal value that means now: the result is 0, and the policy's own
// limit alone paces what follows. A field that is missing, cannot be read, or
// names a moment that has passed does not say when. Then a 429, which is about
// a limit, is worth [DefaultRetryAfter], so that nonsense never causes a storm
// of retries; a 503 is 0, because without a time it tells of an outage and not
// of a limit.
func RetryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	limited := resp.StatusCode == http.StatusTooManyRequests
	if !limited && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	wait, ok := dialect.Fields(dialect.Common, resp.Header["Retry-After"], resp.Header, SentAt(resp))
	switch {
	case ok:
		return min(wait, MaxRetryAfter)
	case limited:
		return DefaultRetryAfter
	}
	return 0
}

// PeekBody returns the next max bytes of an answer's body, or all of a shorter one,
// and leaves the body as it was: its reader sees every byte and the same error at the
// end. It is for a [Policy.Penalty] that must look for a code in the body. Several
// policies may look at the same answer. The bytes must not be changed.
//
// A body in gzip or deflate, because the caller or its SDK has set Accept-Encoding,
// is decoded first: max counts decoded bytes. Of the body itself at most 64 KB more
// than that are read ahead, and its reader gets it as it came. Any other coding (br,
// zstd, several at once) cannot be read: then [Config.Observe] gets an [EventIllegible],
// once for each policy that tried.
//
// Both results are nil if there is nothing to see: in an answer without a body, in
// one that cannot be decoded, and in one that switches protocols (101), whose body is
// a connection.
//
// PeekBody waits until max bytes, the end or an error have come. All looks at one
// answer together wait for a second at most, and do not see what comes later. An
// answer that streams is held up for so long, so look only at answers that can be a
// refusal, by their status, length or type.
//
// An error while reading belongs to the body's reader, which gets it after the
// bytes that came before it. PeekBody returns it only if there are no bytes.
func PeekBody(resp *http.Response, max int64) ([]byte, error) { return peek.Body(resp, max) }

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
	handed, tookLong := resp.Request.Context().Value(handedKey{}).(time.Time)
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if !tookLong || err != nil {
		return now
	}
	if sent := date.Add(time.Second); !sent.Before(handed) && sent.Before(now) {
		return sent
	}
	return now
}

// Took returns how long an answer took from when its request was handed on, for the functions of a
// policy that a [Transport] shows the answer to; 0 if that was less than a second.
func Took(resp *http.Response) time.Duration {
	if resp == nil || resp.Request == nil {
		return 0
	}
	handed, tookLong := resp.Request.Context().Value(handedKey{}).(time.Time)
	if !tookLong {
		return 0
	}
	return time.Since(handed)
}

// handedKey is the context key of the time.Time when a request was handed on, if its answer took
// longer than slowAnswer.
type handedKey struct{}

// slowAnswer is how long an answer must have taken for its Date to tell anything: a Date has
// whole seconds.
const slowAnswer = time.Second
