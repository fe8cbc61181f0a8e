package fleet

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
)

// Options are all optional; nil means the defaults.
type Options struct {
	// Namespace and HashTags are those of the programs' [redisstore.Options].
	Namespace string
	HashTags  bool
}

// A Fleet is the programs that share budgets in one namespace of a Redis. It is safe for
// concurrent use. Its errors hold no address but that of the server, and no password. While
// Redis does not answer, a call asks again until its context ends, and for 10 s at most if the
// context has no deadline.
type Fleet struct {
	client redis.UniversalClient
	conn   *conn.Conn
	keys   keys
	store  *redisstore.Store
}

// New returns the fleet that client's Redis knows. It sends nothing. The client stays the
// caller's.
func New(client redis.UniversalClient, o *Options) *Fleet {
	if o == nil {
		o = new(Options)
	}
	return &Fleet{
		client: client, conn: conn.New(client), keys: keysOf(o.Namespace),
		store: redisstore.New(client, &redisstore.Options{Namespace: o.Namespace, HashTags: o.HashTags}),
	}
}

// patience is for how long a call asks again whose context has no deadline.
const patience = 10 * time.Second

// bound gives a context a deadline unless it has one.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// now returns the server's time.
func (f *Fleet) now(ctx context.Context) (time.Time, error) {
	t, err := f.client.Time(ctx).Result()
	return t, f.failed(err)
}

// failed is the error of a command; nil stays nil.
func (f *Fleet) failed(err error) error {
	if err == nil {
		return nil
	}
	return &Error{f.conn.Error(err)}
}
