// Package fleet monitors and controls the programs that share budgets in Redis.
//
// A program wraps its store in a [Reporter]. Every few seconds the reporter
// stores which program it is and which budgets the program uses. It also learns
// the name and reason of an operator's pause, so that the program's errors
// repeat them. A [Fleet] reads the reports, closes and opens budgets, and keeps
// the policy file that programs follow. The command line is built on it. See
// [fleets] for the keys in Redis, and [rights] for the rights that a Redis user
// needs.
//
// A request pays only for a map lookup in memory.
//
// [fleets]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/fleet.md
// [rights]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/redis.md#the-fewest-rights
package fleet

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/redis/go-redis/v9"
)

// Options configure a [Fleet]. The zero Options name the fleet of the default
// namespace.
type Options struct {
	// Namespace and HashTags must equal the fields of the programs'
	// [redisstore.Options]. Namespace defaults to
	// [redisstore.DefaultNamespace], HashTags to false.
	Namespace string
	HashTags  bool
}

// Fleet monitors and controls the programs that share budgets in one namespace
// of Redis. It is safe for concurrent use. While Redis does not answer, State,
// Describe, Resume, Reset and SetUsed retry until their context ends, or for 10 s
// without a deadline. The other methods fail when the client gives up. Errors
// contain no password, and no address except the server's. Create it with
// [New].
type Fleet struct {
	client redis.UniversalClient
	conn   *conn.Conn
	keys   keys
	store  *redisstore.Store
}

// New returns the fleet of a namespace. It sends nothing. The caller keeps
// ownership of client. The error joins a *[store.OptionError] for each mistake.
// redisstore.New finds the same mistakes.
func New(client redis.UniversalClient, o Options) (*Fleet, error) {
	s := redisstore.New(client, redisstore.Options{Namespace: o.Namespace, HashTags: o.HashTags})
	if err := s.Traits().Err; err != nil {
		return nil, err
	}
	return &Fleet{client: client, conn: conn.New(client), keys: keysOf(o.Namespace), store: s}, nil
}

// patience limits a call whose context has no deadline.
const patience = 10 * time.Second

// withDeadline returns ctx, with a deadline after patience if ctx has none.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// now returns the server's time.
func (f *Fleet) now(ctx context.Context) (time.Time, error) {
	t, err := timeAt(ctx, f.client, f.keys.nodes)
	return t, f.commandError(err)
}

// timeAt returns the time of the server that has a key. Each server of a cluster or a ring has a clock of its own, and
// the client would ask any of them.
func timeAt(ctx context.Context, client redis.UniversalClient, key string) (time.Time, error) {
	switch c := client.(type) {
	case *redis.ClusterClient:
		master, err := c.MasterForKey(ctx, key)
		if err != nil {
			return time.Time{}, err
		}

		// The client learns only from its own commands that a different server has the key now.
		now, err := master.Time(ctx).Result()
		if err != nil {
			c.ReloadState(ctx)
		}
		return now, err
	case *redis.Ring:
		shard, err := c.GetShardClientForKey(key)
		if err != nil {
			return time.Time{}, err
		}
		return shard.Time(ctx).Result()
	}
	return client.Time(ctx).Result()
}

// commandError wraps an error of a client command in an *Error. nil stays nil.
func (f *Fleet) commandError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{f.conn.Error(err)}
}

// Error reports that Redis did not answer, or answered with an error. The cause
// is in Err.
type Error struct{ Err error }

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error of the client, or of the store.
func (e *Error) Unwrap() error { return e.Err }

// storeError wraps an error of the store in an *Error. nil stays nil.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Denied reports whether err says that the Redis user lacks a right.
func Denied(err error) bool { return conn.Denied(err) }

// isOutage reports whether a question that failed with err for one budget would fail for all budgets: Redis is away or denies
// the command, or the context has ended.
func isOutage(err error) bool {
	return conn.Transient(err) || Denied(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// keys are the Redis keys of a fleet. Their hash tag puts them into one slot of a cluster. No budget can have
// such a key: in keys of budgets braces are escaped, or contain the namespace and follow the version of the stored form.
type keys struct {
	nodes    string // sorted set: node ids by the time of their last report, in microseconds
	node     string // prefix of a node id: its record
	pauses   string // hash: hashed key of a budget in hex: end in microseconds, a space, note
	bans     string // sorted set: hashed keys of closed budgets in hex, by their ends in microseconds
	ban      string // prefix of a hashed key in hex: time of the closure in microseconds, a space, closing
	audit    string // list, newest first: time in microseconds, a space, act
	policies string // hash: the pushed file
	history  string // list, newest first: pushed files
	off      string // hash: the operator's last command, off or on
}

// keysOf returns the keys of a namespace. "" is the default namespace.
func keysOf(namespace string) keys {
	p := wire.EscapeTag(cmp.Or(namespace, redisstore.DefaultNamespace)) + ":{fleet}:"
	return keys{p + "nodes", p + "node:", p + "pauses", p + "closed", p + "closed:", p + "audit", p + "policies", p + "history", p + "off"}
}
