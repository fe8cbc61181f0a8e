package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore"
)

// isScript reports whether a command runs a script.
func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

// A tap is a hook that keeps the commands that pass it, and may hold back the
// answers of some until it is told to go on.
type tap struct {
	mu   sync.Mutex
	cmds []redis.Cmder

	hold func(redis.Cmder) bool // whose answers are held back; nil: none
	pass chan struct{}          // each value, or closing, lets one answer through
}

// newTap adds a tap to the client. A tap that holds answers back must be made in
// the bubble that uses it.
func newTap(c redis.UniversalClient, hold func(redis.Cmder) bool) *tap {
	p := &tap{hold: hold, pass: make(chan struct{})}
	c.AddHook(p)
	return p
}

func (p *tap) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (p *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.mu.Lock()
		p.cmds = append(p.cmds, cmd)
		p.mu.Unlock()
		err := next(ctx, cmd)
		if p.hold != nil && p.hold(cmd) {
			<-p.pass
		}
		return err
	}
}

func (p *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// names returns the names of the commands since it was last asked.
func (p *tap) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, cmd := range p.cmds {
		names = append(names, cmd.Name())
	}
	p.cmds = nil
	return names
}

// letOne lets one answer through that is held back, and all happen that comes of it.
func (p *tap) letOne() {
	p.pass <- struct{}{}
	synctest.Wait()
}

// open lets all answers through, and all happen that comes of it.
func (p *tap) open() {
	close(p.pass)
	synctest.Wait()
}

// A middle is a hook that stands between a client and the server's scripts.
type middle func(cmd redis.Cmder, next func() error) error

func (m middle) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m middle) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		return m(cmd, func() error { return next(ctx, cmd) })
	}
}

func (m middle) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// failing lets a command fail with an error.
func failing(cmd redis.Cmder, err error) error {
	cmd.SetErr(err)
	return err
}

// A says is a hook that answers script calls in the server's place for as long
// as err is set.
type says struct {
	tap
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (h *says) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.err.Load(); err != nil && isScript(cmd) {
			h.calls.Add(1)
			cmd.SetErr(*err)
			return *err
		}
		return next(ctx, cmd)
	}
}

func (h *says) set(err error) { h.err.Store(&err) }

// saying returns a store whose server says err to everything, and the hook.
func saying(t *testing.T, c redis.UniversalClient, err error) (*redisstore.Store, *says) {
	t.Helper()
	s, _ := loaded(t, c, nil)
	h := &says{}
	h.set(err)
	c.AddHook(h)
	return s, h
}

// A said is an error that comes from the server itself.
type said string

func (e said) Error() string { return string(e) }
func (said) RedisError()     {}

var errAway = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
