package llm

import (
	"net/http"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// A Usage is how a row learns the actual cost of requests from answers.
type Usage struct {
	// Told reads the tokens out of the JSON of an answer or of an event of a stream. It returns a
	// negative number if they are not there.
	Told func(data []byte) int

	// Count reads a request, and returns the function that computes the row's cost from the
	// request's actual tokens and its time in flight. That function may run after the answer has
	// ended, when the request belongs to its caller again and must not be read.
	Count func(*http.Request) Count

	// Untold reads a request, as Count does, and returns a function that learns from a stream that
	// has ended after some events without stating its tokens. Nil learns nothing.
	Untold func(*http.Request) func(events int, inFlight time.Duration)

	// Booked is the estimate of the row.
	Booked func(*http.Request) int
}

// A Count computes a row's cost from the actual tokens of a request.
type Count = func(tokens int, inFlight time.Duration) int

// AsTold is a Count that returns the tokens.
func AsTold(*http.Request) Count { return func(tokens int, _ time.Duration) int { return tokens } }

// Told returns the function that reads an amount out of the JSON of an answer or an event, and returns -1 without it.
func Told(a feedback.Amount) func(data []byte) int {
	return func(data []byte) int {
		if n, ok := a.In(data); ok {
			return n
		}
		return -1
	}
}

// Settled returns a reader of the row's cost. told reads the tokens of an answer as its cost, and Count
// turns them into the row's cost. An answer without tokens, or without its request, stays as told reads it.
func (u Usage) Settled(told feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		a := told(resp)
		tokens, ok := a.Cost()
		if !ok || resp.Request == nil {
			return a
		}
		return a.WithCost(u.Count(resp.Request)(tokens, feedback.Took(resp)))
	}
}

// Meter is a [throttle.Policy.Meter]. Of several events that state the tokens the highest number counts,
// because the number grows, and some gateways write 0 for an unknown number. A stream that ends without
// stating its tokens costs its estimate, but at least a token for each of its events.
func (u Usage) Meter(resp *http.Response) throttle.Meter {
	if resp.Request == nil {
		return nil
	}

	m := &meter{told: u.Told, most: -1, handed: time.Now().Add(-feedback.Took(resp))}
	m.Meter = feedback.Events(resp, m.event)

	// An error, or an answer that is neither a stream nor JSON, tells no tokens.
	if m.Meter == nil {
		return nil
	}

	m.count, m.booked = u.Count(resp.Request), u.Booked(resp.Request)
	if u.Untold != nil {
		m.untold = u.Untold(resp.Request)
	}

	return m
}

// meter is the [throttle.Meter] of a Usage.
type meter struct {
	throttle.Meter           // calls event, and returns its last result
	count          Count     // of the request
	handed         time.Time // when the request was handed on

	untold func(events int, inFlight time.Duration) // of the request, or nil
	told   func(data []byte) int                    // as in Usage
	most   int                                      // the highest number that an event has stated, or -1 before
	booked int                                      // the estimate for the request
	events int                                      // how many events have come
}

// event counts an event, and returns the highest number of tokens that this or an earlier event has
// stated, or -1.
func (m *meter) event(data []byte) int {
	m.events++
	m.most = max(m.most, m.told(data))
	return m.most
}

// Cost implements [throttle.Meter]. It passes the tokens to count or, if the answer states none, the
// number of events to untold. It returns -1, so that the estimate stays, if no tokens are stated and the
// events are not more than the estimate.
func (m *meter) Cost() int {
	tokens, took := m.Meter.Cost(), time.Since(m.handed)
	if tokens >= 0 {
		return m.count(tokens, took)
	}
	if m.untold != nil && m.events > 0 {
		m.untold(m.events, took)
	}

	// Each event had at least one token.
	if m.events > m.booked {
		return m.events
	}
	return -1
}

// Evenly is the limit of requests where a number for a minute, which is above 0, is enforced second by
// second: a sixtieth, rounded down, in each second or, below 60, one request in 60/perMinute seconds. It is a
// window, and not a distance between starts: two requests that start a second apart may arrive closer
// together, because their ways take different times.
func Evenly(perMinute int) throttle.Limit {
	if perMinute < 60 {
		return throttle.SlidingWindow(1, time.Minute/time.Duration(perMinute))
	}
	return throttle.PerSecond(perMinute / 60)
}

// Requests is a limit of requests a minute. With 0 it is [Unpublished].
func Requests(perMinute int, even bool) throttle.Limit {
	if perMinute > 0 && even {
		return Evenly(perMinute)
	}
	return Tokens(perMinute, false)
}

// Tokens is a limit of tokens a minute. With 0 it is [Unpublished]. One request may take the tokens
// of many seconds, so even spaces requests out in proportion to their tokens.
func Tokens(perMinute int, even bool) throttle.Limit {
	switch {
	case perMinute == 0:
		return throttle.PerMinute(Unpublished)
	case even:
		return throttle.LeakyBucket(perMinute, time.Minute)
	}
	return throttle.PerMinute(perMinute)
}

// A Bucket names the fields of a token bucket in an answer: its size, its level, and when it will
// be full.
type Bucket struct{ Limit, Remaining, Reset string }

// Left is a [throttle.Policy.Answer] that tells the bucket's level. The bucket fills all the time, so
// the level bounds the starts only until as much has flowed in, and not until the bucket is full. Without
// a readable Limit the level holds until the bucket is full.
func (b Bucket) Left(resp *http.Response) throttle.Answer {
	q, ok := feedback.Headers{Remaining: b.Remaining, Reset: b.Reset}.Left(resp).Left()
	if !ok {
		return throttle.Answer{}
	}

	size, err := strconv.ParseInt(resp.Header.Get(b.Limit), 10, 64)
	if missing := size - int64(q.Left); err == nil && missing > 0 {
		// Of an empty bucket the level holds until one token has flowed in.
		perToken := float64(q.Reset) / float64(missing)
		q.Reset = min(q.Reset, time.Duration(perToken*float64(max(q.Left, 1))))
	}
	return throttle.Answer{}.WithLeft(q)
}
