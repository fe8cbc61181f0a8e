package fleet

import (
	"context"
	"errors"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// Denied reports whether an error says that the user of Redis may not do what was asked.
func Denied(err error) bool { return conn.Denied(err) }

// away reports whether an error is about all budgets and not one.
func away(err error) bool {
	return conn.Transient(err) || Denied(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
