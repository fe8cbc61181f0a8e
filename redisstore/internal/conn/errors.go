package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// ErrFar means that no start could be planned within all boundaries that were sent.
var ErrFar = errors.New("redisstore: the start is more calendar windows away than can be planned")

// ErrOvertaken means that a call arrived after a later call of its queue. It did
// nothing.
var ErrOvertaken = errors.New("redisstore: the call was overtaken by a later one")

// Unexecuted reports whether a call failed for good before it did anything: a key held
// a foreign value, its row could not be read, or a start was too far away. A script that lacks
// a right may have done all that comes before the command.
func Unexecuted(err error) bool {
	// No start was found, so no script wrote anything.
	if errors.Is(err, ErrFar) {
		return true
	}
	return begins(err, []string{"WRONGTYPE ", "ERR "}) && !Transient(err) && !Denied(err)
}

// denied are the beginnings of errors for a user that lacks a right.
var denied = []string{"NOPERM ", "NOAUTH ", unauthenticated, "WRONGPASS ", "ERR The user executing the script", "ERR ACL failure in script"}

// unauthenticated is the beginning of the error for a client that has not given its password, in place of
// NOAUTH, if the client's command has more than ten arguments, or one of more than 16 KB.
const unauthenticated = "ERR Protocol error: unauthenticated "

// Denied reports whether an error says that the user of Redis lacks a right.
func Denied(err error) bool { return begins(err, denied) }

// begins reports whether an error of a server begins with one of some texts.
func begins(err error, texts []string) bool {
	var said redis.Error
	return errors.As(err, &said) && slices.ContainsFunc(texts, func(p string) bool { return strings.HasPrefix(said.Error(), p) })
}

// unready are the beginnings of errors of a server that may serve soon.
var unready = []string{
	"LOADING ", "BUSY ", "ERR max number of clients reached",
	"READONLY ", "MASTERDOWN ", "NOREPLICAS ", // a failover goes on
	"CLUSTERDOWN ", "TRYAGAIN ", "MOVED ", "ASK ", // or a cluster changes
	"OOM ", "MISCONF ", // no memory or no disk for more
}

// Transient reports whether asking again may help. Final are some errors of this package and of
// wire, the error of a client that was closed, and what the server itself says, unless it says that
// it is not ready. All other errors are of the network, and may pass.
func Transient(err error) bool {
	for _, final := range []error{redis.ErrClosed, ErrFar, wire.ErrReply, ErrOvertaken, ErrSingle, ErrUnfit} {
		if errors.Is(err, final) {
			return false
		}
	}

	// An error of the network may pass, also if it holds an error of a server, too.
	var away *net.OpError
	var said redis.Error
	if errors.As(err, &away) || !errors.As(err, &said) {
		return true
	}
	return begins(err, unready)
}

// ErrSingle means that the server is part of a cluster and the client is not for one.
var ErrSingle = errors.New("the server is part of a cluster: it needs redis.NewClusterClient")

// ErrUnfit means that a server cannot keep budgets: see admit.
var ErrUnfit = errors.New("this server cannot keep budgets")

// explain adds the remedy to an error of a server, where the server's own words leave
// it open. s is the script that failed, or the zero Script.
func (c *Conn) explain(err error, s wire.Script) error {
	var said redis.Error
	if !errors.As(err, &said) {
		return err
	}

	text := said.Error()
	hasPrefix := func(words string) bool { return strings.HasPrefix(text, words) }

	// The order matters: more special beginnings stand before more general ones.
	switch {
	case c.Single() && (hasPrefix("MOVED ") || hasPrefix("ASK ") || hasPrefix("CROSSSLOT ")):
		return fmt.Errorf("%w: %w", ErrSingle, err)
	case hasPrefix(unauthenticated):
		return fmt.Errorf("NOAUTH Authentication required (set Username and Password of the client): %w", err)
	case hasPrefix("NOPERM ") && strings.Contains(text, " key"):
		return fmt.Errorf("%w (it needs ~NAMESPACE:*)", err)
	case hasPrefix("ERR The user executing the script can't run this command"): // Redis 7.0 does not say which
		if command := s.CalledAt(lineOf(text)); command != "" {
			return fmt.Errorf("%w (it needs +%s, as docs/run/redis.md says)", err, strings.ToLower(command))
		}
		return fmt.Errorf("%w (docs/run/redis.md lists the rights that it needs; ACL LOG of Redis says which is missing)", err)
	case hasPrefix("NOPERM ") || hasPrefix("ERR ACL failure in script"):
		return fmt.Errorf("%w (docs/run/redis.md lists the rights that it needs)", err)
	case hasPrefix("ERR This Redis command is not allowed from script"): // a managed service that refuses TIME
		return fmt.Errorf("%w (the script calls %s: docs/run/redis.md names services that refuse it)", err, cmp.Or(s.CalledAt(lineOf(text)), "it"))
	case isRefusedText(err): // also with the keys as KEYS[…]
		return fmt.Errorf("%w (set script_check_enable of the instance to 0, as docs/run/redis.md says)", err)
	case hasPrefix("WRONGTYPE "):
		return fmt.Errorf("%w (something else has written a key of the namespace)", err)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w (no Sentinel knows a master of that name)", err)
	}

	return err
}

// failedAt is how a server says in which line a script failed.
var failedAt = regexp.MustCompile(`on @user_script:(\d+)`)

// lineOf returns the line that an error of a server names, or 0 if it names no line.
func lineOf(text string) int {
	m := failedAt.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	line, _ := strconv.Atoi(m[1]) // digits; too many of them are no line
	return line
}

// Error is the error of a command that is no call, with the remedy and without
// secrets.
func (c *Conn) Error(err error) error { return c.failed(err, wire.Script{}) }

// failed is [Conn.Error] for the error of a script.
func (c *Conn) failed(err error, s wire.Script) error {
	// The deadline may be the client's, which the caller would take for its own: so no deadline stays in the error.
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer in time")
	}
	return c.redacted(c.explain(err, s))
}

// redacted returns the error of a call with the server's address and without secrets.
// The result wraps no error of a context: it is of the client's deadlines, and the caller
// would take it for one of its own.
func (c *Conn) redacted(err error) error {
	text := redact(err.Error())
	var said redis.Error

	// An error whose text has a secret is replaced, and not wrapped: the caller could unwrap the secret.
	switch {
	case errors.As(err, &said) && text != err.Error():
		err = serverError(text)
	case text != err.Error(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		err = errors.New(text)
	}

	// go-redis has written the address into some errors already.
	if at := c.where(); at != "" && !strings.Contains(text, at) {
		return fmt.Errorf("redisstore: %s: %w", at, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}

// A serverError is an error in the words of the server itself.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (serverError) RedisError() {}

// What a server repeats of a command that it does not know can be a password or
// a key. An address that was written as a URL can hold a password.
var (
	repeated = regexp.MustCompile(`(?s), with args beginning with:.*`)
	userinfo = regexp.MustCompile(`\S+@`)
)

// redact takes out of a text what may be secret.
func redact(text string) string {
	return userinfo.ReplaceAllLiteralString(repeated.ReplaceAllLiteralString(text, ""), "…@")
}

// where is the address of the server, or "" if there may be several.
func (c *Conn) where() string {
	client, ok := c.client.(*redis.Client)
	if !ok || client.Options().Addr == "FailoverClient" { // go-redis' name for a client of Sentinel
		return ""
	}
	return redact(client.Options().Addr)
}

// because returns the error of a call, marked as outage.Denied or outage.Failed if it will not pass.
func because(err error) error {
	switch {
	case Denied(err):
		return outage.Because(outage.Denied, err)
	case !Transient(err):
		return outage.Because(outage.Failed, err)
	}
	return err
}

// overdue is how long Redis must not have answered to be named as the reason in the error of a
// caller whose context ended.
const overdue = 50 * time.Millisecond

// An Unavailability is why a caller has no answer of Redis yet.
type Unavailability struct {
	Since time.Time // when the caller began to wait
	Fails int       // how many calls failed since
	Last  error     // why the last call failed, or nil if no call failed
}

// Add notes that a call failed.
func (u *Unavailability) Add(err error) { u.Fails, u.Last = u.Fails+1, err }

// Unavailable returns the error of a caller that waits no longer. Ended is why its context ended, or
// nil if its own time is up. The result is ended itself if nothing was wrong with Redis.
func (c *Conn) Unavailable(u Unavailability, ended error) error {
	took := time.Since(u.Since)

	// Redis was not slow and no call failed, so the caller's own context is the whole reason.
	if ended != nil && u.Last == nil && took < overdue {
		return ended
	}
	return &unavailableError{u, took, c.where(), ended}
}

// Cause returns the error for a caller's observer while the caller waits for its answer.
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

// brief rounds a duration for a reader.
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
