// Package conn calls scripts in Redis. It makes a call again that has no answer,
// says what is wrong with a Redis that does not answer, and hides the client:
// topology, script cache, and what is secret in its errors.
package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/store"
)

// A Conn is the way to one Redis, or one cluster.
type Conn struct {
	// Now tells the scripts the time in microseconds; nil lets them ask the server.
	Now func() int64

	textIsRead atomic.Bool // a proxy reads the text of scripts: it gets them in another form
	keyed      sync.Map    // scripts in that form, by the hash of the usual one

	client   redis.UniversalClient
	admitted sync.Map     // by address of a server: when it was found to be able to keep budgets
	skew     atomic.Int64 // the server's clock less ours, in microseconds: a guess
	clocked  atomic.Bool  // skew is known
	askedAt  atomic.Int64 // when it was first asked what it has not answered; 0: it answered since
	heardAt  atomic.Int64 // when Redis answered last, in nanoseconds; 0: it failed to since
}

// New returns a Conn that uses a client.
func New(client redis.UniversalClient) *Conn { return &Conn{client: client} }

// learnTime takes in the server's time, in microseconds, as an answer tells it.
func (c *Conn) learnTime(now int64) {
	c.skew.Store(now - time.Now().UnixMicro())
	c.clocked.Store(true)
}

// CutOff is by how much the server's time in an answer may be too early. Dragonfly tells scripts whole
// milliseconds; a time that has no fraction of one may come from such a server.
func (c *Conn) CutOff(now int64) time.Duration {
	if c.Now != nil || now%time.Millisecond.Microseconds() != 0 {
		return 0
	}
	return time.Millisecond
}

// now is the time for the scripts; "" lets them ask the server.
func (c *Conn) now() any {
	if c.Now == nil {
		return ""
	}
	return c.Now()
}

// Unheard is for how long Redis has not answered what it was asked. If it failed
// when it was heard of last, that is forever.
func (c *Conn) Unheard() time.Duration {
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

// Subscribe returns nil where there is nobody to listen to: a ring panics when it
// has no shard that answers.
func (c *Conn) Subscribe(ctx context.Context, channels ...string) (sub *redis.PubSub) {
	defer func() {
		if recover() != nil {
			sub = nil
		}
	}()
	return c.client.Subscribe(ctx, channels...)
}

// DB is the number of the logical database. Those of one server share its channels.
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
