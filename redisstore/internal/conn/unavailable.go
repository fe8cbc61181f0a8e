package conn

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// overdue is how long Redis must not have answered to be named as the reason in the error of a
	// caller whose context ended.
	overdue = 50 * time.Millisecond

	// Silence is how long a caller waits for an answer before its observer is told why there is none.
	Silence = time.Second
)

// How long a caller waits for Redis to answer.
const (
	ReplyTime      = time.Second            // a caller that does not wait for room
	leastReplyTime = 100 * time.Millisecond // the least, for a caller with a short MaxWait
)

// Timeout returns a channel that is told when Redis has taken too long for a caller
// that came at since and waits for room as long as maxWait; nil if Patience has no end. stop must
// be called when the channel is not needed any more.
func Timeout(ctx context.Context, maxWait time.Duration, since time.Time) (timeUp <-chan time.Time, stop func()) {
	d, ends := Patience(ctx, maxWait, since)
	if !ends {
		return nil, func() {}
	}
	if d -= time.Since(since); d <= 0 {
		over := make(chan time.Time)
		close(over)
		return over, func() {}
	}
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// Patience returns how long, from since on, a caller that came then and waits for room as long as
// maxWait waits for an answer of Redis; false: as long as its context lets it.
func Patience(ctx context.Context, maxWait time.Duration, since time.Time) (d time.Duration, ends bool) {
	switch {
	case maxWait < 0:
		return 0, false
	case maxWait == 0:
		d = ReplyTime
	default:
		d = max(maxWait, leastReplyTime)
	}
	end, ok := ctx.Deadline()
	return d, !ok || end.Sub(since) > d
}

// An Unavailability is why a caller has no answer of Redis yet.
type Unavailability struct {
	Since time.Time // when the caller began to wait
	Fails int       // how many calls failed since
	Last  error     // why the last call failed; nil: none failed
}

// Add notes that a call failed.
func (u *Unavailability) Add(err error) { u.Fails, u.Last = u.Fails+1, err }

// Unavailable returns the error of a caller that waits no longer: ended is why its context ended;
// nil: its own time is up. It is ended itself if nothing was wrong with Redis.
func (c *Conn) Unavailable(u Unavailability, ended error) error {
	took := time.Since(u.Since)
	if ended != nil && u.Last == nil && took < overdue {
		return ended
	}
	return &unavailableError{u, took, c.where(), ended}
}

// Cause returns the error that an observer is told of while a caller waits for its answer.
func (c *Conn) Cause(u Unavailability) error {
	if u.Last != nil {
		return u.Last
	}
	return c.Unavailable(u, nil)
}

// An unavailableError says that Redis did not answer in time, and why.
type unavailableError struct {
	Unavailability
	took  time.Duration
	where string
	ended error
}

// Error implements error. It does not say why the caller waits no longer, which the caller knows.
func (e *unavailableError) Error() string {
	text := "redisstore: no answer for " + brief(e.took).String()
	switch {
	case e.Last != nil:
		return text + fmt.Sprintf(" (failed calls: %d): ", e.Fails) + strings.TrimPrefix(e.Last.Error(), "redisstore: ")
	case e.where != "":
		return text + " from " + e.where
	}
	return text
}

// brief rounds a duration to what is worth reading.
func brief(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Millisecond)
}

// Unwrap returns why the caller waits no longer, and why the last call failed.
func (e *unavailableError) Unwrap() (all []error) {
	for _, err := range []error{e.ended, e.Last} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Await returns true when done is told, and false when ctx ends or the time is up.
// Tell, unless it is nil, is called once if there is no answer yet: when something
// has failed, or after a second of silence since the caller came.
func Await(ctx context.Context, since time.Time, done <-chan struct{}, timeUp <-chan time.Time, failed <-chan struct{}, tell func()) bool {
	if tell != nil {
		silent := make(chan struct{})
		if left := Silence - time.Since(since); left > 0 {
			defer time.AfterFunc(left, func() { close(silent) }).Stop()
		} else {
			close(silent)
		}
		select {
		case <-done:
			return true
		case <-ctx.Done():
			return false
		case <-timeUp:
			return false
		case <-failed:
		case <-silent:
		}
		tell()
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-timeUp:
	}
	return false
}
