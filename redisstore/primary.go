package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/line"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A primary keeps the budgets of the fleet in Redis, and knows nothing of those of this
// node alone, nor of the fallback. It has no lock. Those of the packages below it are taken in this order:
//
//   - the record locks of leases (line), in the order of their keys. They are the only ones
//     that are held during a call;
//   - the groups of the fallback, then a local share, then what that keeps in memory;
//   - the queues (commit), while they tell the line what became of their ops;
//   - the callers in line for starts, or those for slots (line): never both;
//   - the subscriptions (notify), the watches (watch), and what the node knows (history):
//     while one of these is held no other is taken.
type primary struct {
	client   redis.UniversalClient
	conn     *conn.Conn
	names    *names.Space
	history  *history.History
	offsets  *history.ClockOffsets
	pauses   *history.PauseEnds
	shut     *history.PauseEnds // unlimited budgets that Redis said to be shut: see docs/unlimited.md
	commit   *commit.Queues
	line     *line.Lines
	subs     *notify.Subscriptions
	watches  *watch.Watches
	onPause  atomic.Pointer[func()] // who is told of pauses; nil: nobody
	allNews  bool                   // quota reports that are not worth a call are made all the same: for tests
	noNotice bool                   // no loss is announced: a test wants no calls in the background
}

// op returns an op for a booking.
func (p *primary) op(k wire.Kind, b *throttle.Booking) *commit.Op {
	op := p.commit.NewOp(k, b.Charges)
	op.MaxWait, op.NotBefore, op.Spread = wire.MaxWait(b.MaxWait), b.NotBefore, b.Spread
	op.Has(b.Instead)
	p.line.Join(op, b)
	return op
}

// remaining is what is left of a longest wait. One that is spent is not that of a
// caller that never waits, for whom Redis may take longer.
func remaining(maxWait time.Duration, since time.Time) time.Duration {
	if maxWait <= 0 {
		return maxWait
	}
	return max(1, maxWait-time.Since(since))
}
