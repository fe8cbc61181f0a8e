// Package conn calls scripts in Redis. It repeats calls that have no answer, explains why a Redis
// does not answer, and hides the client: topology, script cache, and the secrets in its errors.
package conn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A Conn is the way to one Redis, or one cluster.
type Conn struct {
	// Now tells the scripts the time in microseconds. Without a Now they ask the server.
	Now func() int64

	textIsRead atomic.Bool // a proxy reads the text of scripts: it gets the form of Script.Keyed
	keyed      sync.Map    // scripts in that form, by the usual one

	client   redis.UniversalClient
	admitted sync.Map     // by address of a server: when it was found to be able to keep budgets
	skew     atomic.Int64 // the server's clock less ours, in microseconds: a guess
	clocked  atomic.Bool  // skew is known
	askedAt  atomic.Int64 // when the oldest unanswered call was sent, in nanoseconds, or 0 if Redis answered since
	heardAt  atomic.Int64 // when Redis answered last, in nanoseconds, or 0 before the first answer and if a call failed since
}

// New returns a Conn that uses a client.
func New(client redis.UniversalClient) *Conn { return &Conn{client: client} }

// Ask makes the call of a request, as often as it takes, and reads its reply. The
// request is made anew each time: the lengths of time in it may have changed.
// failed and ctx are as in [Conn.Retry]. If ctx has ended before, Ask sends nothing, and returns an error.
func Ask[R any](ctx context.Context, c *Conn, failed func(error), request func() wire.Request[R]) (reply R, err error) {
	if ctx.Err() != nil {
		return reply, c.Unavailable(Unavailability{Since: time.Now()}, context.Cause(ctx))
	}
	err = c.Retry(ctx, failed, func() (err error) {
		reply, err = AskOnce(ctx, c, request)
		return err
	})
	return reply, err
}

// AskOnce is Ask with a single attempt, which it makes even if ctx has ended.
func AskOnce[R any](ctx context.Context, c *Conn, request func() wire.Request[R]) (reply R, err error) {
	// The reply is read by the request that was sent last.
	var q wire.Request[R]
	f, err := c.Call(ctx, func(b wire.Boundaries, _ []wire.Gate) wire.Call {
		q = request()
		return q.Call(b)
	})
	if err != nil {
		return reply, err
	}
	return q.Read(f)
}

// Retry calls f, which makes a call, until the call is done or fails for good, or ctx ends.
// If ctx ends the error says for how long there was no answer, and why. failed, unless it is
// nil, is called with each error after which the call is made again.
func (c *Conn) Retry(ctx context.Context, failed func(error), f func() error) error {
	// The time from the first attempt on goes into the error of a caller that leaves.
	u := Unavailability{Since: time.Now()}
	err := Retry(ctx, nil, func(err error) bool {
		u.Add(err)
		if failed != nil {
			failed(err)
		}
		return true
	}, f)
	if err != nil && ctx.Err() != nil {
		return c.Unavailable(u, context.Cause(ctx))
	}
	return err
}

// Retry calls f, which may be repeated without harm, until it succeeds, fails for
// good, or ctx ends. failed, unless it is nil, is called with each error after which
// f would be called again; if failed returns false, Retry returns the error. A value
// on wake ends the pause before the next call.
func Retry(ctx context.Context, wake <-chan struct{}, failed func(error) bool, f func() error) error {
	var b Backoff
	for {
		err := f()

		if err == nil || ctx.Err() != nil || !Transient(err) {
			return err
		}
		if failed != nil && !failed(err) {
			return err
		}
		b.Wait(ctx, wake)

		// The context's own cause says more than the last failure.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// A Backoff is the pauses between attempts to reach a Redis that is away: each is
// twice as long as the last, from firstPause to lastPause. The zero value begins with firstPause.
type Backoff struct{ next time.Duration }

const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Wait waits for the next pause. It returns early if ctx ends or wake is ready.
func (b *Backoff) Wait(ctx context.Context, wake <-chan struct{}) {
	pause := max(firstPause, b.next)
	b.next = min(2*pause, lastPause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

// ErrUnanswered says that an [Exchange] goes on. No caller sees it.
var ErrUnanswered = errors.New("redisstore: no answer yet")

// maxCalls bounds how often a call is built. Each time that the script needs more boundaries of
// calendar windows, they reach at least twice as far.
const maxCalls = 12

// An Exchange is a call of a script on its way to its answer. It goes on when nobody waits
// for it: one goroutine may stop to wait, and a second goroutine may await the exchange later.
type Exchange struct {
	conn       *Conn
	build      func(wire.Boundaries, []wire.Gate) wire.Call
	boundaries wire.Boundaries // that the last call was built with
	call       wire.Call       // as it was built last
	sent       *hedge          // the same call, on its way
	calls      int             // how often the call was built and sent
}

// Begin sends the call that build returns. The exchange calls build again if the script needs more
// boundaries of calendar windows or lengths of time as of now, or if the script found gates shut: these are
// then build's second argument.
func (c *Conn) Begin(build func(wire.Boundaries, []wire.Gate) wire.Call) *Exchange {
	// Boundaries follow the server's clock, as far as the last answer told its time.
	now := time.Now().UnixMicro() + c.skew.Load()
	x := &Exchange{conn: c, build: build, boundaries: wire.Boundaries{Now: now, Until: now, Known: c.clocked.Load()}}
	x.send(nil)
	return x
}

// Call is [Conn.Begin], then [Exchange.Await].
func (c *Conn) Call(ctx context.Context, build func(wire.Boundaries, []wire.Gate) wire.Call) (wire.Frame, error) {
	return c.Begin(build).Await(ctx)
}

// send builds the call with the present boundaries and sends it. shut are the gates that the last
// call found shut.
func (x *Exchange) send(shut []wire.Gate) {
	x.calls++
	x.call = x.build(x.boundaries, shut)
	x.sent = x.conn.begin(x.call)
}

// Await waits for the answer and returns the reply of the script. It repeats a call that has no
// answer for hedgeAfter. If ctx ends it returns at once, but the exchange goes on.
func (x *Exchange) Await(ctx context.Context) (wire.Frame, error) {
	return x.await(func() (string, error) { return x.sent.await(ctx) })
}

// AwaitUntil waits for the answer until ctx ends or the time is up. Then the error is
// [ErrUnanswered], and a second goroutine can await the exchange. It does not repeat a call that has
// no answer.
func (x *Exchange) AwaitUntil(ctx context.Context, timeUp <-chan time.Time) (wire.Frame, error) {
	return x.await(func() (string, error) { return x.sent.awaitUntil(ctx, timeUp) })
}

// await gets an answer from receive, and sends the call anew as long as the script asks for it. It returns the reply of the
// script, or an error. If receive returns ErrUnanswered, so does await.
func (x *Exchange) await(receive func() (string, error)) (wire.Frame, error) {
	for {
		s, err := receive()
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

		// Each answer of a script tells the server's time.
		x.conn.learnTime(head.Now)
		switch {
		case head.Status == wire.Done:
			return done, nil
		case head.Status == wire.Late:
			return nil, ErrOvertaken
		// A start that far ahead is not looked for any further.
		case x.calls == maxCalls:
			return nil, because(ErrFar)
		case head.Status != wire.Shut:
			x.boundaries = x.boundaries.Wider(head)
		}

		// The script did nothing: it gets wider boundaries and new lengths of time, or the rows of the gates that are shut.
		x.send(head.Gates)
	}
}

// A connection can die without a word: a router forgets it, a cable is cut. The
// client notices when its ReadTimeout is over, by default after five seconds, and
// then takes the next idle connection, which may be as dead. So a call that has no answer for
// hedgeAfter is made again on a second connection. The first answer counts. The scripts do a call
// once, also if it comes twice or late: see docs/internals/once.md.
const (
	hedgeAfter = time.Second
	pingTime   = 20 * time.Millisecond // how long after pingIdle the dead connections have left the pool
	maxHedges  = 8                     // how often one call is made, on as many connections
)

// A hedge is a call on its way, once or several times. The client does not promise to obey
// a context while a command is on its way, so each attempt has a goroutine of its own.
type hedge struct {
	conn     *Conn
	call     wire.Call
	begun    time.Time
	attempts int         // how often hedgeAfter or pingTime was over without an answer
	answers  chan answer // gets the first answer
	answered atomic.Bool // an attempt has sent the first answer
}

// An answer is what an attempt got.
type answer struct {
	reply string
	err   error
}

// begin sends a call, and does not wait for its answer.
func (c *Conn) begin(call wire.Call) *hedge {
	h := &hedge{conn: c, call: call, begun: time.Now(), answers: make(chan answer, 1)}

	// The first call without an answer says since when Redis is silent.
	c.askedAt.CompareAndSwap(0, h.begun.UnixNano())
	go h.attempt()
	return h
}

// attempt sends the call and waits for its answer, which is the hedge's if it is the first.
func (h *hedge) attempt() {
	GrowStack()
	reply, err := h.conn.eval(h.call)

	// Only the first answer counts: later ones are to copies of the same call.
	wasAnswered := h.answered.Swap(true)
	if !wasAnswered {
		h.answers <- answer{reply, h.conn.noteAnswer(err, h.call.Script)}
	}
}

// await waits for the answer, or until ctx ends: then it returns the cause. After hedgeAfter without an answer it pings the
// idle connections, and then it sends copies of the call, maxHedges calls in all.
func (h *hedge) await(ctx context.Context) (string, error) {
	// The call may have been on its way for a while already.
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
		// First get rid of dead connections, so that the copy does not go out on one of them.
		case h.attempts == 0:
			h.conn.pingIdle()
			silent.Reset(pingTime)
		case h.attempts < maxHedges:
			go h.attempt()
			silent.Reset(hedgeAfter)
		}
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

// pingIdle sends pings on the idle connections of each pool, in parallel, so that dead connections leave the pool now, and not
// one call after the other. In each pool it sends at most PoolSize-maxHedges pings, which leaves connections for maxHedges calls.
func (c *Conn) pingIdle() {
	pingNode := func(ctx context.Context, node *redis.Client) error {
		// Each ping takes a connection out of the pool, and a dead connection does not come back.
		for range min(int(node.PoolStats().IdleConns), node.Options().PoolSize-maxHedges) {
			go node.Process(ctx, noRetryCmd{redis.NewCmd(ctx, "ping")})
		}
		return nil
	}

	// Each node of a cluster or a ring has a pool of its own.
	ctx := context.Background()
	switch client := c.client.(type) {
	case *redis.Client:
		_ = pingNode(ctx, client)
	case *redis.Ring:
		_ = client.ForEachShard(ctx, pingNode)

	// The client first asks a server for the topology, so do not wait for it.
	case *redis.ClusterClient:
		go client.ForEachMaster(ctx, pingNode)
	}
}

// noteAnswer notes whether Redis has answered a script: err is the client's error, or nil for an answer.
// It returns the error with a text that says the remedy. A nil error stays nil. After an error that may pass, a
// cluster client looks anew for the server of each key.
func (c *Conn) noteAnswer(err error, s wire.Script) error {
	if err == nil {
		c.heardAt.Store(time.Now().UnixNano())
		c.askedAt.Store(0)
		return nil
	}

	// Until Redis answers again, Unheard is store.MaxAhead.
	c.heardAt.Store(0)
	c.reloadTopology(err)
	return c.explain(err, s)
}

// reloadTopology has a cluster client find out which server has which keys now. By itself the client
// does so after an error of a command that it may repeat, and otherwise once a minute.
func (c *Conn) reloadTopology(err error) {
	if cluster, ok := c.client.(*redis.ClusterClient); ok && Transient(err) {
		cluster.ReloadState(context.Background())
	}
}

// GrowStack grows the goroutine's stack at once, while there is little on it to move: growing
// it in steps cost a tenth of a call. Goroutines that make calls begin with GrowStack.
//
//go:noinline
func GrowStack() (x byte) {
	var room [8 << 10]byte
	return room[len(room)-1]
}

// eval runs the script of a call once and returns its answer.
func (c *Conn) eval(call wire.Call) (string, error) {
	args := call.Args(c.now())
	return c.run(call.Script, call.Keys, func(name, script string) *redis.Cmd {
		cmd := c.send(name, script, call.Keys, args)

		// A server that has just learned the script does not have the scripts of a status either.
		if name == "eval" && call.Script == wire.BookScript && cmd.Err() == nil {
			c.bringStatus(call.Keys)
		}
		return cmd
	}).Text()
}

// Run runs a script that is not written as a wire.Call, such as a script of package fleet, and returns
// the list that the script answers, or nil if it answers no list.
func (c *Conn) Run(ctx context.Context, s wire.Script, keys []string, args ...any) ([]any, error) {
	reply, err := c.run(s, keys, func(name, script string) *redis.Cmd {
		if name == "eval" {
			c.bringStatus(keys)
			return c.client.Eval(ctx, script, keys, args...)
		}
		return c.client.EvalSha(ctx, script, keys, args...)
	}).Result()
	if err != nil {
		return nil, c.failed(err, s)
	}
	list, _ := reply.([]any)
	return list, nil
}

// run runs a script by its hash. To a server that does not know the script it sends the text, if the server is admitted:
// see admit. exec sends one command, evalsha or eval, and waits for its answer. The command that run returns has the answer
// or the error.
func (c *Conn) run(s wire.Script, keys []string, exec func(name, script string) *redis.Cmd) *redis.Cmd {
	// A keyed script is a script of its own, so look at the usual one first.
	describes := s == wire.StatusScript || s == wire.SlotsStatusScript
	keyed := c.textIsRead.Load()
	if keyed {
		s = c.keyedScript(s)
	}

	cmd := exec("evalsha", s.Hash())

	// Only a server that does not know the script is examined: all others cost no further call.
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		if err := c.admit(keys); err != nil {
			cmd.SetErr(err)
			return cmd
		}

		cmd = exec("eval", s.Source())

		// Programs that may send texts bring the scripts that describe budgets: see bringStatus.
		if Denied(cmd.Err()) && describes {
			cmd.SetErr(errUnbrought)
		}
	}

	// The proxy in front of the server reads texts: from now on it gets keyed scripts.
	if isRefusedText(cmd.Err()) && !keyed {
		c.textIsRead.Store(true)
		return c.run(s, keys, exec)
	}

	return cmd
}

// errUnbrought is the error of a user who asks for the state of a budget, and who may run only scripts that the server knows.
const errUnbrought = serverError("this server does not know yet how to describe a budget: the next program that books there brings that")

// bringStatus brings the two scripts that describe budgets to the server of some keys, which did not know a script that every
// program runs. From then on users who may not send scripts, such as the watcher of docs/run/redis.md, can run the two. Without
// keys bringStatus does nothing. A failure is not told: the next call meets the same server.
func (c *Conn) bringStatus(keys []string) {
	if len(keys) == 0 {
		return
	}
	for _, limit := range []store.Limit{store.Unlimited(), store.Concurrency(1)} {
		q := wire.StatusRequest{Key: keys[0] + lockKey, Charge: &store.Charge{Limit: limit, Cost: 1}}
		_, _ = c.eval(q.Call(wire.Boundaries{}))
	}
}

// keyedScript returns the form of a script for proxies that read its text, and remembers it.
func (c *Conn) keyedScript(s wire.Script) wire.Script {
	if keyed, ok := c.keyed.Load(s); ok {
		return keyed.(wire.Script)
	}
	keyed := s.Keyed()
	c.keyed.Store(s, keyed)
	return keyed
}

// isRefusedText reports whether a proxy refused a script because of how its text names keys.
func isRefusedText(err error) bool {
	return err != nil && strings.Contains(err.Error(), "bad lua script for redis cluster")
}

// send sends a command that runs a script, evalsha or eval, and waits for its answer. It belongs to
// no caller's context: how long it may take is up to the client's own timeouts.
func (c *Conn) send(name, script string, keys []string, args []any) *redis.Cmd {
	words := append(make([]any, 0, 3+len(keys)+len(args)), name, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	ctx := context.Background()
	cmd := noRetryCmd{redis.NewCmd(ctx, append(words, args...)...)}
	_ = c.client.Process(ctx, cmd) // the command has the error
	return cmd.Cmd
}

// A noRetryCmd is a command that the client must not repeat by itself: only the package that makes
// a call knows how to find out whether the call was done.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry is the method by which go-redis asks a command.
func (noRetryCmd) NoRetry() bool { return true }

// Silence is how long a caller waits for an answer before its observer learns of the outage.
const Silence = time.Second

// How long a caller waits for Redis to answer.
const (
	ReplyTime    = time.Second            // a caller that does not wait for room
	minReplyTime = 100 * time.Millisecond // the least, for a caller with a short MaxWait
)

// Remaining returns the rest of a MaxWait that began at since. A MaxWait that is spent does not become 0,
// which is the MaxWait of a caller that never waits: Redis may take longer to answer such a caller.
func Remaining(maxWait time.Duration, since time.Time) time.Duration {
	if maxWait <= 0 {
		return maxWait
	}
	return max(1, maxWait-time.Since(since))
}

// Timeout returns a channel that is ready once the time of [Patience] is over: when Redis has taken too long for a caller
// that came at since and waits for room for at most maxWait. The channel is nil if Patience has no end. Call stop when the
// channel is not needed any more.
func Timeout(ctx context.Context, maxWait time.Duration, since time.Time) (timeUp <-chan time.Time, stop func()) {
	d, ends := Patience(ctx, maxWait, since)
	if !ends {
		return nil, func() {}
	}

	// Part of the time is over already.
	d -= time.Since(since)
	if d <= 0 {
		over := make(chan time.Time)
		close(over)
		return over, func() {}
	}
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// Patience returns for how long, from since on, a caller waits for an answer of Redis: the caller came at since and
// waits for room for at most maxWait. If ends is false, the caller waits until its context ends.
func Patience(ctx context.Context, maxWait time.Duration, since time.Time) (d time.Duration, ends bool) {
	switch {
	case maxWait < 0:
		return 0, false
	case maxWait == 0:
		d = ReplyTime
	default:
		d = max(maxWait, minReplyTime)
	}

	// If the context ends earlier, the caller needs no time of its own.
	end, ok := ctx.Deadline()
	return d, !ok || end.Sub(since) > d
}

// Await waits for the answer. It returns true once done is ready, and false if ctx ends or timeUp is ready before. While
// there is no answer, Await calls tell once, unless tell is nil: when failed is ready, or when the caller, which came at
// since, has waited for Silence.
func Await(ctx context.Context, since time.Time, done <-chan struct{}, timeUp <-chan time.Time, failed <-chan struct{}, tell func()) bool {
	// A select takes any of several channels that are ready: the answer may be there when it takes a different channel.
	answered := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}

	if tell != nil {
		// Wait until there is something to tell.
		silent := make(chan struct{})
		if left := Silence - time.Since(since); left > 0 {
			defer time.AfterFunc(left, func() { close(silent) }).Stop()
		} else {
			close(silent)
		}

		select {
		case <-done:
			return true
		case <-ctx.Done():
			return answered()
		case <-timeUp:
			return answered()
		case <-failed:
		case <-silent:
		}

		if answered() {
			return true
		}
		tell()
	}

	// Tell was called, or is nil.
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-timeUp:
	}

	return answered()
}

// now is the time for the scripts. With "" the scripts ask the server.
func (c *Conn) now() any {
	if c.Now == nil {
		return ""
	}
	return c.Now()
}

// learnTime records the server's time in an answer, in microseconds.
func (c *Conn) learnTime(now int64) {
	c.skew.Store(now - time.Now().UnixMicro())
	c.clocked.Store(true)
}

// CutOff is by how much the server's time in an answer may be too early. Dragonfly tells scripts whole
// milliseconds; a time without a fraction of a millisecond may come from such a server.
func (c *Conn) CutOff(now int64) time.Duration {
	if c.Now != nil || now%time.Millisecond.Microseconds() != 0 {
		return 0
	}
	return time.Millisecond
}

// Unheard is for how long Redis has answered no call, from the first call after its last answer on, and 0 if there is no
// such call. Before the first answer, and after a call that failed, it is [store.MaxAhead], because nobody knows since when
// Redis is away.
func (c *Conn) Unheard() time.Duration {
	// There was no answer yet, or a failed call has set heardAt to 0.
	if c.heardAt.Load() == 0 {
		return store.MaxAhead
	}
	if at := c.askedAt.Load(); at != 0 {
		return time.Duration(time.Now().UnixNano() - at)
	}
	return 0
}

// Publish sends a message.
func (c *Conn) Publish(ctx context.Context, channel, message string) error {
	return c.client.Publish(ctx, channel, message).Err()
}

// Subscribe subscribes to some channels. It returns nil where there is nobody to listen to: a ring panics when
// it has no shard that answers.
func (c *Conn) Subscribe(ctx context.Context, channels ...string) (sub *redis.PubSub) {
	defer func() {
		if recover() != nil {
			sub = nil
		}
	}()
	return c.client.Subscribe(ctx, channels...)
}

// DB is the number of the logical database. The databases of one server share its channels.
func (c *Conn) DB() int {
	switch c := c.client.(type) {
	case *redis.Client:
		return c.Options().DB
	case *redis.Ring:
		return c.Options().DB
	}
	return 0
}

// Single reports whether the client is for a server that is part of no cluster.
func (c *Conn) Single() bool {
	_, single := c.client.(*redis.Client)
	return single
}
