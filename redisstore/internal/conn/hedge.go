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

// A hedge is a call on its way, once or several times. The client does not promise to obey
// a context while a command is on its way, so each attempt has a goroutine of its own.
type hedge struct {
	conn     *Conn
	call     wire.Call
	begun    time.Time
	attempts int
	answers  chan answer
	answered atomic.Bool
}

// An answer is what an attempt got.
type answer struct {
	reply string
	err   error
}

// begin sends a call.
func (c *Conn) begin(call wire.Call) *hedge {
	h := &hedge{conn: c, call: call, begun: time.Now(), answers: make(chan answer, 1)}
	c.askedAt.CompareAndSwap(0, h.begun.UnixNano())
	go h.attempt()
	return h
}

// attempt sends the call and tells the first answer.
func (h *hedge) attempt() {
	GrowStack()
	reply, err := h.conn.eval(h.call)
	if !h.answered.Swap(true) {
		h.answers <- answer{reply, h.conn.heard(err, h.call.Script)}
	}
}

// awaitUntil waits for the answer until ctx ends or the time is up.
func (h *hedge) awaitUntil(ctx context.Context, timeUp <-chan time.Time) (string, error) {
	select {
	case a := <-h.answers:
		return a.reply, a.err
	case <-ctx.Done():
	case <-timeUp:
	}
	return "", ErrUnanswered
}

// await waits for an answer, and makes the call again while there is none.
func (h *hedge) await(ctx context.Context) (string, error) {
	silent := time.NewTimer(max(1, time.Until(h.begun.Add(hedgeAfter))))
	defer silent.Stop()
	for ; ; h.attempts++ {
		select {
		case a := <-h.answers:
			return a.reply, a.err
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-silent.C:
		}
		switch {
		case h.attempts == 0:
			h.conn.pingIdle()
			silent.Reset(pingTime)
		case h.attempts < maxHedges:
			go h.attempt()
			silent.Reset(hedgeAfter)
		}
	}
}

// heard notes an answer to a script. It returns the error with what would help.
func (c *Conn) heard(err error, s wire.Script) error {
	if err == nil {
		c.heardAt.Store(time.Now().UnixNano())
		c.askedAt.Store(0)
		return nil
	}
	c.heardAt.Store(0)
	c.reloadTopology(err)
	return c.explain(err, s)
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
