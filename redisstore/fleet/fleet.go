package fleet

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/names"
)

// Options are those of a [Fleet]. The zero value of each field is useful.
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
// caller's. The error has a *[store.OptionError] for each mistake, which is one that the
// programs' redisstore.New would find, too.
func New(client redis.UniversalClient, o Options) (*Fleet, error) {
	s := redisstore.New(client, redisstore.Options{Namespace: o.Namespace, HashTags: o.HashTags})
	if err := s.Traits().Err; err != nil {
		return nil, err
	}
	return &Fleet{client: client, conn: conn.New(client), keys: keysOf(o.Namespace), store: s}, nil
}

// patience is for how long a call asks again whose context has no deadline.
const patience = 10 * time.Second

// withDeadline returns a context with the deadline of ctx or, if ctx has none, with one after patience.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, patience)
}

// now returns the server's time.
func (f *Fleet) now(ctx context.Context) (time.Time, error) {
	t, err := f.client.Time(ctx).Result()
	return t, f.commandError(err)
}

// commandError returns the *Error of a command of the client that returned err; nil stays nil.
func (f *Fleet) commandError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{f.conn.Error(err)}
}

// An Error says that Redis could not be asked, or what it said in place of an answer.
type Error struct{ Err error }

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error of the client, or of the store.
func (e *Error) Unwrap() error { return e.Err }

// storeError returns the *Error of a call of the store that returned err; nil stays nil.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Denied reports whether an error says that the user of Redis may not do what was asked.
func Denied(err error) bool { return conn.Denied(err) }

// isOutage reports whether an error of a question about one budget will be that of any other budget, too:
// Redis is away, denies the command, or the context has ended.
func isOutage(err error) bool {
	return conn.Transient(err) || Denied(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// keys are the names of what is kept of a fleet. Their hash tag puts them into one slot
// of a cluster. No budget has such a name: there, braces are escaped or hold its group,
// behind the version of its stored form.
type keys struct {
	nodes    string // sorted set: node ids by their last report, in microseconds
	node     string // and an id: its record
	pauses   string // hash: hashed key of a budget in hex: end in microseconds, a space, note
	bans     string // sorted set: hashed keys of closed budgets in hex, by their ends in microseconds
	ban      string // and a hashed key in hex: when the budget was closed in microseconds, a space, closing
	audit    string // list: moment in microseconds, a space, act; the newest first
	policies string // hash: the pushed file
	history  string // list: pushed files; the newest first
}

// keysOf returns the keys of the fleet of a namespace; "" is the default one.
func keysOf(namespace string) keys {
	p := names.Escape(cmp.Or(namespace, redisstore.DefaultNamespace)) + ":{fleet}:"
	return keys{p + "nodes", p + "node:", p + "pauses", p + "closed", p + "closed:", p + "audit", p + "policies", p + "history"}
}
