package line

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/commit"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A node is lines without a Redis.
type node struct {
	*Lines
	mu    sync.Mutex
	asked []*commit.Op // what nobody waits for
}

func newNode() *node {
	n := &node{}
	subs := notify.New(nil, nil)
	subs.Listen = func(context.Context, *notify.Subscription) {}
	n.Lines = New(&Options{Names: names.New("test"), Subs: subs, NoNews: true, Post: func(op *commit.Op) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asked = append(n.asked, op)
	}})
	return n
}

// charge is of 1 in a budget.
func charge(l throttle.Limit) throttle.Charge {
	return throttle.Charge{Budget: throttle.Budget{Policy: "p", Group: "group", Key: [16]byte{1}}, Limit: l, Cost: 1}
}

const horizon = 750 * time.Millisecond

// told is a caller that Redis told that its start is so far away, and that it has that ticket.
func (n *node) told(class, ticket int64, wait time.Duration) *commit.Op {
	c := charge(throttle.PerSecond(9))
	op := commit.NewOp(wire.Reserve, c)
	op.Class, op.Horizon, op.MaxWait = class, horizon, wire.AnyWait
	op.Outcome.State, op.Outcome.Wait = wire.InLine, wire.Micros(wait)
	op.Outcome.Tickets = []wire.Ticket{{Budget: c.Budget.Key, Line: 1, Number: ticket}}
	n.Settled(op)
	return op
}

// called reports whether a caller was called.
func called(op *commit.Op) bool {
	select {
	case <-op.Ready:
		return true
	default:
		return false
	}
}

// requireCalled requires that a caller is called in so long, and not before.
func requireCalled(t *testing.T, in time.Duration, op *commit.Op) {
	t.Helper()
	begin := time.Now()
	<-op.Ready
	if took := time.Since(begin); took != in {
		t.Errorf("called after %v, want %v", took, in)
	}
}
