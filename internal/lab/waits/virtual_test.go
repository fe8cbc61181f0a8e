package waits

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// near is how far away a server on the same network is.
const near = ms

// A virtual server runs the scripts of scenarios in virtual time.
type virtual struct{ *redissim.Backend }

// stage lets a scenario happen in virtual time, with an empty server so far away.
func (v virtual) stage(t *testing.T, trip time.Duration, seed uint64, f func(stage, *redissim.Network)) {
	t.Helper()
	require.NoError(t, v.Reset())
	synctest.Test(t, func(t *testing.T) {
		n := redissim.New(v.Backend, 0, 0, trip, seed)
		f(newStage(t), n)
		require.NoError(t, n.Err())
	})
}

// A node is a program with a store of its own.
type node struct {
	client redis.UniversalClient
	store  *redisstore.Store
	life   context.Context
	die    func()
}

// newNode returns a node that is connected. Its client is closed when the callers of the
// scenario are gone, and with them what the store still has to say.
func (s stage) newNode(n *redissim.Network) *node {
	client, cut := n.Mortal()
	life, end := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() {
		end()
		time.Sleep(time.Minute)
		require.NoError(s.t, client.Close())
		time.Sleep(time.Minute)
	})
	require.NoError(s.t, client.Publish(s.t.Context(), "hello", "").Err())
	return &node{client, redisstore.New(client, redisstore.Options{}), life, func() { cut(); end() }}
}

// nodes returns so many.
func (s stage) nodes(n *redissim.Network, many int) (all []*node) {
	for range many {
		all = append(all, s.newNode(n))
	}
	return all
}

// limiter returns the node's limiter of the policy that all share.
func (n *node) limiter(l store.Limit) *throttle.Limiter { return newLimiter(n.store, l) }

// acquire waits for a start of a cost, as long as the node lives.
func (n *node) acquire(ctx context.Context, l *throttle.Limiter, cost int) (*throttle.Permit, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(n.life, leave)()
	return l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", cost)
}
