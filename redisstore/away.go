package redisstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// overdue is how late an answer is to be named as what kept a caller that
	// has left.
	overdue = 50 * time.Millisecond

	// silence is after what time without an answer whoever waits is told so.
	silence = time.Second
)

// A trouble is what keeps Redis from answering.
type trouble struct {
	since time.Time // when who waits began to
	fails int       // how many calls failed meanwhile
	last  error     // why the last one did; nil: none did
}

// end is the error of a caller that waits no longer because its context ended,
// or its patience if ended is nil. One that leaves before there is any trouble
// learns nothing new.
func (t trouble) end(where string, ended error) error {
	took := time.Since(t.since)
	if ended != nil && t.last == nil && took < overdue {
		return ended
	}
	return &awayError{t, took, where, ended}
}

// yet is why a caller that goes on waiting has no answer.
func (t trouble) yet(where string) error {
	if t.last != nil {
		return t.last
	}
	return t.end(where, nil)
}

// An awayError says that Redis did not answer in time, and why.
type awayError struct {
	trouble
	took  time.Duration
	where string
	ended error
}

// Error implements error. Why the caller waits no longer it knows best.
func (e *awayError) Error() string {
	text := "redisstore: no answer for " + brief(e.took).String()
	switch {
	case e.last != nil:
		return text + fmt.Sprintf(" (failed calls: %d): ", e.fails) + strings.TrimPrefix(e.last.Error(), "redisstore: ")
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
func (e *awayError) Unwrap() (all []error) {
	for _, err := range []error{e.ended, e.last} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// answered returns when done is told, or false when ctx ends or the time is up.
// Whoever wants to know is told, once, why there is no answer yet: when something
// has failed, or after a second of silence.
func answered(ctx context.Context, done <-chan struct{}, timeUp <-chan time.Time, failed <-chan struct{}, tell func()) bool {
	if tell != nil {
		silent := time.NewTimer(silence)
		defer silent.Stop()
		select {
		case <-done:
			return true
		case <-ctx.Done():
			return false
		case <-timeUp:
			return false
		case <-failed:
		case <-silent.C:
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

// where is the address of the server; "" if there may be several.
func (s *Store) where() string {
	c, ok := s.client.(*redis.Client)
	if !ok || c.Options().Addr == "FailoverClient" { // as go-redis calls those of Sentinel
		return ""
	}
	return hide(c.Options().Addr)
}

// failure is the error of a call: it says what and where, and nothing secret.
func (s *Store) failure(err error) error {
	err = discreet(err)
	if at := s.where(); at != "" && !strings.Contains(err.Error(), at) {
		return fmt.Errorf("redisstore: %s: %w", at, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}

// discreet returns an error that holds nothing secret, and that is not taken for
// the caller's own context: calls have none, only the client's deadlines.
func discreet(err error) error {
	text := hide(err.Error())
	var said redis.Error
	switch {
	case errors.As(err, &said) && text != err.Error():
		return reply(text)
	case text != err.Error(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New(text)
	}
	return err
}

// A reply is an error that comes from the server itself.
type reply string

func (e reply) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (reply) RedisError() {}

// What a server repeats of a command that it does not know can be a password or
// a key. An address that was written as a URL can hold a password.
var (
	repeated = regexp.MustCompile(`(?s), with args beginning with:.*`)
	userinfo = regexp.MustCompile(`\S+@`)
)

// hide takes out of a text what may be secret.
func hide(text string) string {
	return userinfo.ReplaceAllLiteralString(repeated.ReplaceAllLiteralString(text, ""), "…@")
}
