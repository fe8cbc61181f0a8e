package conn

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

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
