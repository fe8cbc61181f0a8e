package redistest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// count is a script that counts how often it ran.
const count = `return redis.call('INCR', 'count')`

// A bystander sees what happens behind a proxy.
type bystander struct {
	t      *testing.T
	proxy  *redistest.Proxy
	client *redis.Client // through the proxy; never repeats, and waits long
	direct *redis.Client
}

func watch(t *testing.T, s *redistest.Server) bystander {
	p := redistest.NewProxy(t, s)
	o := p.Options()
	o.MaxRetries = -1
	c := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return bystander{t, p, c, s.Client(t)}
}

// ran requires that the script ran so often.
func (b bystander) ran(want int64) {
	b.t.Helper()
	got, err := b.direct.Exists(b.t.Context(), "count").Result()
	require.NoError(b.t, err)
	if got > 0 {
		got, err = b.direct.Get(b.t.Context(), "count").Int64()
		require.NoError(b.t, err)
	}
	require.Equal(b.t, want, got)
}

func (b bystander) call() error { return b.client.Eval(b.t.Context(), count, nil).Err() }

// inBackground makes a call in the background.
func (b bystander) inBackground() <-chan error {
	done := make(chan error, 1)
	go func() { done <- b.call() }()
	return done
}

// timeout makes a call with a client that soon gives up, and then does. The client gives up the call alone: a busy machine may take longer to connect it.
func (b bystander) timeout() {
	b.t.Helper()
	o := b.proxy.Options()
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	hasty := redis.NewClient(o)
	require.NoError(b.t, hasty.Ping(b.t.Context()).Err())
	soon, cancel := context.WithTimeout(b.t.Context(), 200*time.Millisecond)
	defer cancel()
	var timeout net.Error
	require.ErrorAs(b.t, hasty.Eval(soon, count, nil).Err(), &timeout)
	require.True(b.t, timeout.Timeout())
	require.NoError(b.t, hasty.Close())
}

func TestProxyPassesEverything(t *testing.T) {
	s := redistest.Shared(t)
	for _, protocol := range []int{2, 3} {
		o := redistest.NewProxy(t, s).Options()
		o.Protocol = protocol
		c := redis.NewClient(o)
		require.NoError(t, c.Del(t.Context(), "key", "map").Err())
		requireServes(t, c)
		require.Equal(t, redis.Nil, c.Get(t.Context(), "none").Err())
		require.NoError(t, c.Set(t.Context(), "key", "a\r\n$1\r\n", 0).Err())
		require.NoError(t, c.HSet(t.Context(), "map", "field", "", "other", "1").Err())
		require.Equal(t, map[string]string{"field": "", "other": "1"}, c.HGetAll(t.Context(), "map").Val())
		v, err := c.Eval(t.Context(), `return {1, {KEYS[1], {}}, false, redis.call('GET', 'key')}`, []string{"k"}).Result()
		require.NoError(t, err)
		require.Equal(t, []any{int64(1), []any{"k", []any{}}, nil, "a\r\n$1\r\n"}, v)
		require.ErrorContains(t, c.Eval(t.Context(), "not Lua", nil).Err(), "ERR ")

		cmds, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 100 {
				p.Incr(t.Context(), "key:number")
			}
			return p.Del(t.Context(), "key:number").Err()
		})
		require.NoError(t, err)
		require.Equal(t, int64(100), cmds[99].(*redis.IntCmd).Val())
		require.NoError(t, c.Close())
	}
}

func TestProxyPassesMessages(t *testing.T) {
	s := redistest.Shared(t)
	for _, protocol := range []int{2, 3} {
		o := redistest.NewProxy(t, s).Options()
		o.Protocol = protocol
		c := redis.NewClient(o)
		sub := c.Subscribe(t.Context(), s.Namespace)
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Client(t).Publish(t.Context(), s.Namespace, "news").Err())
		got, err := sub.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, "news", got.Payload)
		require.NoError(t, sub.Close())
		require.NoError(t, c.Close())
	}
}

func TestProxyCuts(t *testing.T) {
	for how, want := range map[redistest.How]int64{redistest.CutBefore: 0, redistest.CutAfter: 1} {
		b := watch(t, redistest.Shared(t))
		f := b.proxy.Disturb(how)
		require.NoError(t, b.client.Ping(t.Context()).Err(), "not a script")
		require.Error(t, b.call())
		f.Await(t)
		b.ran(want)
		require.NoError(t, b.call(), "the next call is not disturbed")
		b.ran(want + 1)
	}
}

func TestProxySwallows(t *testing.T) {
	b := watch(t, redistest.Shared(t))
	f := b.proxy.Disturb(redistest.Swallow)
	b.timeout()
	f.Await(t)
	b.ran(1)
}

func TestProxyHoldsReplies(t *testing.T) {
	b := watch(t, redistest.Shared(t))
	f := b.proxy.Disturb(redistest.HoldReply)
	first := b.inBackground()
	f.Await(t)
	b.ran(1)
	require.NoError(t, b.call(), "on another connection")
	require.Empty(t, first)
	f.Pass(t)
	require.NoError(t, <-first)
	b.ran(2)
}

// A client repeats a call that has no answer for long. The copy has no answer either.
func TestProxyHoldsRepliesToCopies(t *testing.T) {
	b := watch(t, redistest.Shared(t))
	f := b.proxy.Disturb(redistest.HoldReplies)
	first := b.inBackground()
	f.Await(t)
	second := b.inBackground()
	require.Eventually(t, func() bool { return b.direct.Get(t.Context(), "count").Val() == "2" }, 30*time.Second, time.Millisecond)
	require.Empty(t, first)
	require.Empty(t, second)
	f.Pass(t)
	require.NoError(t, <-first)
	require.NoError(t, <-second)

	f = b.proxy.Disturb(redistest.HoldReplies)
	third := b.inBackground()
	f.Await(t)
	b.proxy.Switch(redistest.Shared(t))
	require.Error(t, <-third)
	require.NoError(t, b.call(), "it is over with the server")
}

// The server executes a call of a client that is gone.
func TestProxyHoldsCalls(t *testing.T) {
	b := watch(t, redistest.Shared(t))
	f := b.proxy.Disturb(redistest.HoldCall)
	b.timeout()
	b.ran(0)
	require.NoError(t, b.call(), "on another connection")
	b.ran(1)
	f.Pass(t)
	b.ran(2)

	f = b.proxy.Disturb(redistest.HoldCall)
	waits := b.inBackground()
	f.Await(t)
	b.ran(2)
	f.Pass(t)
	require.NoError(t, <-waits, "the client is still there")
}

func TestProxyFaultsQueue(t *testing.T) {
	b := watch(t, redistest.Shared(t))
	for range 3 {
		b.proxy.Disturb(redistest.CutAfter)
	}
	for range 3 {
		require.Error(t, b.call())
	}
	require.NoError(t, b.call())
	b.ran(4)
}

func TestProxySwitches(t *testing.T) {
	b := watch(t, redistest.Single(t))
	require.NoError(t, b.call())
	other := redistest.Single(t)
	held := b.proxy.Disturb(redistest.HoldReply)
	first := b.inBackground()
	held.Await(t)
	b.proxy.Switch(other)
	require.Error(t, <-first)
	require.NoError(t, b.client.Set(t.Context(), "moved", 1, 0).Err())
	require.Equal(t, int64(1), other.Client(t).Exists(t.Context(), "moved").Val())

	other.Kill()
	require.Error(t, b.client.Ping(t.Context()).Err())
}

func TestProxyInABubble(t *testing.T) {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s)
	synctest.Test(t, func(t *testing.T) {
		c := p.Client(t)
		f := p.Disturb(redistest.HoldReply)
		done := make(chan error)
		go func() { done <- c.Eval(t.Context(), count, nil).Err() }()
		f.Pass(t)
		require.NoError(t, <-done)
	})
}

// A line is a connection through a wire.
type line struct {
	*testing.T
	net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, w *redistest.Wire) line {
	conn, err := net.Dial("tcp", w.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	// It only keeps a failure from lasting forever.
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return line{t, conn, bufio.NewReader(conn)}
}

func (l line) ping() {
	_, err := fmt.Fprint(l, "PING\r\n")
	require.NoError(l, err)
}

func (l line) pong() {
	text, err := l.replies.ReadString('\n')
	require.NoError(l, err)
	require.Equal(l, "+PONG\r\n", text)
}

// silent requires that nothing has come by the time that another connection,
// which was asked later, was answered.
func (l line) silent(other line) {
	other.ping()
	other.pong()
	require.NoError(l, l.SetReadDeadline(time.Now()))
	_, err := l.replies.ReadByte()
	var timeout net.Error
	require.ErrorAs(l, err, &timeout)
	require.True(l, timeout.Timeout())
	require.NoError(l, l.SetReadDeadline(time.Now().Add(30*time.Second)))
}

func TestWire(t *testing.T) {
	server := redistest.Single(t)
	w, other := redistest.NewWire(t, server.Addr), dial(t, redistest.NewWire(t, server.Addr))
	l := dial(t, w)
	l.ping()
	l.pong()

	w.Hold()
	l.ping()
	l.silent(other)
	w.Mend()
	l.pong()

	w.Deafen()
	l.ping()
	l.silent(other)
	fresh := dial(t, w)
	fresh.ping()
	fresh.pong()
	l.silent(other)

	w.Delay(0, 20*time.Millisecond)
	begin := time.Now()
	fresh.ping()
	fresh.ping()
	fresh.pong()
	fresh.pong()
	require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)

	w.Disconnect()
	_, err := fresh.replies.ReadByte()
	require.Error(t, err)
	cut := dial(t, w)
	_, err = cut.replies.ReadByte()
	require.Error(t, err)
	w.Mend()
	again := dial(t, w)
	again.ping()
	again.pong()
}
