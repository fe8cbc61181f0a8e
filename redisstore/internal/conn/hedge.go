package conn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A connection can die without a word: a router forgets it, a cable is cut. The
// client notices when its ReadTimeout is over, by default after five seconds, and
// then takes the next one, which may be as dead. So a call that has no answer for a
// second is made again on another connection. The first answer counts. To the
// scripts it is no news that a call comes twice, or late: see docs/once.md.
const (
	hedgeAfter = time.Second
	pingTime   = 20 * time.Millisecond // after it the dead connections are not in the pool
	maxHedges  = 8                     // at the same time, for one call
)

// hedge makes a call, and makes it again while there is no answer. The client does
// not promise to obey a context while a command is on its way, so each attempt has a
// goroutine of its own.
func (c *Conn) hedge(ctx context.Context, call wire.Call) (string, error) {
	type answer struct {
		reply string
		err   error
	}
	c.askedAt.CompareAndSwap(0, time.Now().UnixNano())
	answers := make(chan answer, maxHedges)
	var answered atomic.Bool
	attempt := func() {
		GrowStack()
		reply, err := c.eval(call)
		if !answered.Swap(true) {
			answers <- answer{reply, c.heard(err)}
		}
	}
	go attempt()
	silent := time.NewTimer(hedgeAfter)
	defer silent.Stop()
	for attempts := 0; ; attempts++ {
		select {
		case a := <-answers:
			return a.reply, a.err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-silent.C:
		}
		switch {
		case attempts == 0:
			c.pingIdle()
			silent.Reset(pingTime)
		case attempts < maxHedges:
			go attempt()
			silent.Reset(hedgeAfter)
		}
	}
}

// heard notes an answer. It returns the error with what would help.
func (c *Conn) heard(err error) error {
	if err == nil {
		c.heardAt.Store(time.Now().UnixNano())
		c.askedAt.Store(0)
		return nil
	}
	c.heardAt.Store(0)
	c.reloadTopology(err)
	return c.explain(err)
}

// GrowStack makes room on the stack for deep calls at once, while there is little to
// move: growing in steps cost a tenth of a call. New goroutines of a call begin with it.
//
//go:noinline
func GrowStack() (x byte) {
	var room [8 << 10]byte
	return room[len(room)-1]
}

// reloadTopology lets a cluster client find out who serves what now. It does so by
// itself only for commands that it may repeat, and else once a minute.
func (c *Conn) reloadTopology(err error) {
	if cluster, ok := c.client.(*redis.ClusterClient); ok && Transient(err) {
		cluster.ReloadState(context.Background())
	}
}

// pingIdle asks all idle connections for a sign of life, so that those that are dead
// leave the pool together and not one after the other. It leaves room in the pool
// for calls.
func (c *Conn) pingIdle() {
	node := func(ctx context.Context, c *redis.Client) error {
		for range min(int(c.PoolStats().IdleConns), c.Options().PoolSize-maxHedges) {
			go c.Process(ctx, once{redis.NewCmd(ctx, "ping")})
		}
		return nil
	}
	ctx := context.Background()
	switch c := c.client.(type) {
	case *redis.Client:
		_ = node(ctx, c)
	case *redis.ClusterClient:
		go c.ForEachMaster(ctx, node)
	case *redis.Ring:
		go c.ForEachShard(ctx, node)
	}
}
