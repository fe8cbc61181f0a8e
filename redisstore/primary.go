package redisstore

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/line"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/watch"
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
	shut     *history.PauseEnds // unlimited budgets that Redis said to be shut: see docs/internals/unlimited.md
	commit   *commit.Queues
	line     *line.Lines
	subs     *notify.Subscriptions
	watches  *watch.Watches
	onPause  atomic.Pointer[func()] // who is told of pauses; nil: nobody
	allNews  bool                   // quota reports that are not worth a call are made all the same: for tests
	noNotice bool                   // no loss is announced: a test wants no calls in the background
}
