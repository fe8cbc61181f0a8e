package conn

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// eval runs a script once and returns its answer.
func (c *Conn) eval(call wire.Call) (string, error) {
	args := call.Args(c.now())
	reply, err := c.send("evalsha", call.Script.Hash, call.Keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return c.send("eval", call.Script.Source, call.Keys, args)
	}
	return reply, err
}

// Run runs a script that is no call, and returns the list that it answers.
func (c *Conn) Run(ctx context.Context, s wire.Script, keys []string, args ...any) ([]any, error) {
	reply, err := c.client.EvalSha(ctx, s.Hash, keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = c.client.Eval(ctx, s.Source, keys, args...).Result()
	}
	if err != nil {
		return nil, c.failed(err, s)
	}
	list, _ := reply.([]any)
	return list, nil
}

// send sends one command. It belongs to no caller's context: how long it may take
// is up to the client's own timeouts.
func (c *Conn) send(name, script string, keys []string, args []any) (string, error) {
	words := append(make([]any, 0, 3+len(keys)+len(args)), name, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	ctx := context.Background()
	cmd := noRetryCmd{redis.NewCmd(ctx, append(words, args...)...)}
	if err := c.client.Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// A noRetryCmd is a command that the client must not repeat by itself: only the owner of a
// call knows how to ask what became of it.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry tells the client so.
func (noRetryCmd) NoRetry() bool { return true }

// A connection can die without a word: a router forgets it, a cable is cut. The
// client notices when its ReadTimeout is over, by default after five seconds, and
// then takes the next one, which may be as dead. So a call that has no answer for a
// second is made again on another connection. The first answer counts. To the
// scripts it is no news that a call comes twice, or late: see docs/internals/once.md.
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
		h.answers <- answer{reply, h.conn.noteAnswer(err, h.call.Script)}
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

// noteAnswer notes an answer to a script. It returns the error with what would help.
func (c *Conn) noteAnswer(err error, s wire.Script) error {
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
			go c.Process(ctx, noRetryCmd{redis.NewCmd(ctx, "ping")})
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

// An Exchange is a call of a script on its way to its answer. It goes on when nobody waits
// for it: a goroutine may leave it, and another one await it then.
type Exchange struct {
	conn       *Conn
	build      func(wire.Boundaries, []wire.Gate) wire.Call
	boundaries wire.Boundaries
	call       wire.Call
	sent       *hedge // the call, on its way
	calls      int
}

// ErrUnanswered says that an [Exchange] goes on. No caller sees it.
var ErrUnanswered = errors.New("redisstore: no answer yet")

// maxCalls bounds how often one call is made again with more boundaries of calendar
// windows. Each time they reach at least twice as far.
const maxCalls = 12

// Begin sends a call. It builds the call anew as often as the script asks for more, and
// tells it which gates the last one found shut.
func (c *Conn) Begin(build func(wire.Boundaries, []wire.Gate) wire.Call) *Exchange {
	now := time.Now().UnixMicro() + c.skew.Load()
	x := &Exchange{conn: c, build: build, boundaries: wire.Boundaries{Now: now, Until: now, Known: c.clocked.Load()}}
	x.send(nil)
	return x
}

// Call runs a script and returns its answer: the server's time, then what it did. Build is
// as for [Conn.Begin], and ctx as for [Exchange.Await].
func (c *Conn) Call(ctx context.Context, build func(wire.Boundaries, []wire.Gate) wire.Call) (wire.Frame, error) {
	return c.Begin(build).Await(ctx)
}

// send sends the call as it is now.
func (x *Exchange) send(shut []wire.Gate) {
	x.calls++
	x.call = x.build(x.boundaries, shut)
	x.sent = x.conn.begin(x.call)
}

// Await waits for the answer and returns what the script did. It makes calls again that
// have none for a second. If ctx ends it returns at once, but what was sent goes on.
func (x *Exchange) Await(ctx context.Context) (wire.Frame, error) {
	return x.await(func() (string, error) { return x.sent.await(ctx) })
}

// AwaitUntil waits for the answer until ctx ends or the time is up: then the error is
// [ErrUnanswered], and nothing is lost. It makes no call again for want of an answer.
func (x *Exchange) AwaitUntil(ctx context.Context, timeUp <-chan time.Time) (wire.Frame, error) {
	return x.await(func() (string, error) { return x.sent.awaitUntil(ctx, timeUp) })
}

func (x *Exchange) await(reply func() (string, error)) (wire.Frame, error) {
	for {
		s, err := reply()
		if err == ErrUnanswered {
			return nil, err
		}
		if err != nil {
			return nil, because(x.conn.redacted(err))
		}
		head, done, err := wire.ReadHead(s, x.call.Keys)
		if err != nil {
			return nil, because(err)
		}
		x.conn.learnTime(head.Now)
		switch {
		case head.Status == wire.Done:
			return done, nil
		case head.Status == wire.Late:
			return nil, ErrOvertaken
		case x.calls == maxCalls:
			return nil, because(ErrFar)
		case head.Status != wire.Shut:
			x.boundaries = x.boundaries.Wider(head)
		}
		x.send(head.Gates)
	}
}
