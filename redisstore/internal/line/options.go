package line

import (
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
)

// Options are what lines work with. All but NoNews are required.
type Options struct {
	Names  *names.Space
	Subs   *notify.Subscriptions
	Post   func(*commit.Op) // makes an op that nobody waits for
	NoNews bool             // callers for starts listen to no messages, and wait for no others: a test has a clock of its own
}

// channels are those on which waiters for budgets of a group are called.
func (o *Options) channels(group string) notify.Channels { return notify.ChannelsOf(o.Names, group) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
