package conn

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// Error is the error of a command that is no call: what it says, what would help, and
// nothing secret.
func (c *Conn) Error(err error) error { return c.failed(err, wire.Script{}) }

// failed is [Conn.Error] for a script.
func (c *Conn) failed(err error, s wire.Script) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer in time")
	}
	return c.redacted(c.explain(err, s))
}

// redacted is the error of a call: it says what and where, and nothing secret. It is
// not taken for the caller's own context: calls have none, only the client's deadlines.
func (c *Conn) redacted(err error) error {
	text := redact(err.Error())
	var said redis.Error
	switch {
	case errors.As(err, &said) && text != err.Error():
		err = reply(text)
	case text != err.Error(), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		err = errors.New(text)
	}
	if at := c.where(); at != "" && !strings.Contains(text, at) {
		return fmt.Errorf("redisstore: %s: %w", at, err)
	}
	return fmt.Errorf("redisstore: %w", err)
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

// redact takes out of a text what may be secret.
func redact(text string) string {
	return userinfo.ReplaceAllLiteralString(repeated.ReplaceAllLiteralString(text, ""), "…@")
}
