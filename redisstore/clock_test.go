package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A skewed clock is ahead of the bubble's, or behind.
type skewed struct{ by atomic.Int64 }

func (c *skewed) now() int64 { return time.Now().Add(time.Duration(c.by.Load())).UnixMicro() }

func (c *skewed) step(by time.Duration) { c.by.Add(int64(by)) }

// onSkewed runs f in a bubble with a store whose server has a clock of its own.
func onSkewed(t *testing.T, f func(t *testing.T, s *redisstore.Store, c *skewed)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := &skewed{}
		f(t, redisstore.NewAt(server.Client(t), nil, c.now), c)
	})
}

const span = time.Second + time.Microsecond // of one per second
