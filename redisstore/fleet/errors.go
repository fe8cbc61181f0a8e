package fleet

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// Denied reports whether an error says that the user of Redis may not do what was asked.
func Denied(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	text := said.Error()
	for _, words := range []string{"NOPERM ", "NOAUTH ", "WRONGPASS ", "ERR The user executing the script", "ERR ACL failure in script"} {
		if strings.HasPrefix(text, words) {
			return true
		}
	}
	return false
}

// away reports whether an error is about all budgets and not one.
func away(err error) bool {
	return conn.Transient(err) || Denied(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
