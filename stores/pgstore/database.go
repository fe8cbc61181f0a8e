package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// syncKey ends the key of a row that is written by a transaction that would only read, after a COMMIT without an
// answer: its rows may be in this server alone, if somebody ended the wait for a synchronous standby. What is
// written waits for the standby, and for all that came before.
const (
	syncKey  = "/sync"
	syncKeep = time.Hour
)

// maxTries is how often a transaction is repeated after the server has undone it.
const maxTries = 5

// errURL is the error of a URL that cannot be read. The error of pgx has the whole URL in a field, and maybe in its text, and so the password.
var errURL = errors.New("pgstore: the URL, or what PGHOST, PGPORT, PGSSLMODE and others of the environment add to it, cannot be read: " +
	"want postgres://user:password@host:port/database?name=value, or keywords and values as in \"host=… dbname=…\"; what was given is not repeated here, because it may hold a password")

// parse returns the configuration that a URL describes.
func parse(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	return config, nil
}

// A database implements [rowstore.Database], [rowstore.Reader] and [rowstore.Notifier].
type database struct {
	server   server
	conns    *conns
	sweeper  sweeper
	listener listener
	unsure   sync.Map // groups of which a COMMIT had no answer, see syncKey
}

// newDatabase returns the database of a configuration. Without one it only returns the mistakes in the options.
func newDatabase(config *pgx.ConnConfig, o Options) (*database, error) {
	if err := o.check(); err != nil || config == nil {
		return nil, err
	}

	// Defaults of the options, and of the URL.
	o.Schema = cmp.Or(o.Schema, defaultSchema)
	o.Connections = cmp.Or(o.Connections, defaultConnections)
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "throttle"
	}

	d := &database{server: server{config: config, before: o.BeforeConnect, after: o.afterConnect, sql: newStatements(o.Schema)}}

	// Messages that PgBouncer passes on to these connections are dropped.
	d.conns = newConns(o.Connections, func(ctx context.Context) (*conn, error) {
		return d.server.connect(ctx, func(*pgconn.PgConn, *pgconn.Notification) {})
	})
	d.sweeper.conns, d.sweeper.sql = d.conns, d.server.sql
	d.listener.conns, d.listener.server = d.conns, &d.server

	return d, nil
}

// Transact implements [rowstore.Database].
func (d *database) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	for try := 1; ; try++ {
		again, err := d.try(ctx, group, keys, do)
		if err == nil {
			d.sweeper.sweepSometimes()
			return nil
		}

		if !again || try == maxTries || ctx.Err() != nil {
			return err
		}

		// The session that has the lock may wait for a program that stands still.
		if isCode(err, lockNotAvailable) {
			d.free(ctx, group)
		}
	}
}

// free ends the session that has the lock of a group, if the session waits for a program that stands still. It returns no
// error, because the caller asks for the lock again in any case.
func (d *database) free(ctx context.Context, group string) {
	c, err := d.conns.get(ctx)
	if err != nil {
		return
	}
	if _, err := c.Exec(ctx, d.server.sql.free, d.server.sql.lockTable(group)); err != nil {
		d.conns.drop(c)
		return
	}
	d.conns.put(c)
}

// try makes a transaction. again says that it is certain that nothing was saved, and that a second try may help.
func (d *database) try(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) (again bool, err error) {
	c, err := d.conns.get(ctx)
	if err != nil {
		return false, wrap(err)
	}

	stop := c.until(ctx)
	again, sound, err := d.transact(ctx, c, group, keys, do)

	// If ctx has ended, the connection has a deadline in the past, and is of no use any more.
	if stop() && sound {
		d.conns.put(c)
		return again, err
	}

	d.conns.drop(c)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}

	return again, err
}

// transact makes a transaction on a connection. sound says that the connection is in no transaction.
func (d *database) transact(ctx context.Context, c *conn, group string, keys []string, do func(rowstore.Tx) error) (again, sound bool, err error) {
	t := &tx{sql: d.server.sql, c: c, group: group}
	if err := t.start(keys, lockWaitIn(ctx)); err != nil {
		// The connection is still good after a wait for the lock that took too long. A new one would cost the server as much as many
		// transactions, just when it is busy.
		if isCode(err, lockNotAvailable) {
			return true, t.rollBack() == nil, wrap(err)
		}

		// The server was restarted, or a firewall forgot the connection: a new one may be better.
		return isUndone(err) || c.used && c.IsClosed(), false, wrap(err)
	}

	// An error of the server ends the transaction, and after an error of do alone the connection is still good.
	if err := do(t); err != nil {
		if t.broke != nil {
			return isUndone(t.broke), false, err
		}
		return false, t.rollBack() == nil, err
	}

	// After a COMMIT without an answer, a transaction that would only read waits for the standby, too: see syncKey.
	if _, unsure := d.unsure.Load(group); unsure && len(t.puts) == 0 {
		t.Put(group+syncKey, nil, syncKeep)
	}

	// From here on nothing may cancel a statement, and after an error saving stays set: see server.connect.
	c.saving.Store(true)
	if err := t.save(); err != nil {
		if isUndone(err) {
			return true, false, wrap(err)
		}
		if t.refused {
			return false, false, fmt.Errorf("%w: %w", rowstore.ErrNotSaved, wrap(err))
		}

		// Nobody knows whether this COMMIT was done.
		d.unsure.Store(group, true)
		return false, false, wrap(err)
	}

	c.saving.Store(false)
	d.unsure.Delete(group)
	return false, true, nil
}

// lockWaitIn returns how long a transaction with the time of ctx may wait for the lock: the server ends the wait before that time is over.
func lockWaitIn(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return lockWait
	}
	return min(lockWait, time.Until(end)-answerWait)
}

// Read implements [rowstore.Reader].
func (d *database) Read(ctx context.Context, _ string, keys []string, do func(rowstore.Tx) error) error {
	// Each round reads on a different connection. broke is the error of the connection, and err the error for the caller.
	for {
		c, err := d.conns.get(ctx)
		if err != nil {
			return wrap(err)
		}

		stop := c.until(ctx)
		t := &tx{sql: d.server.sql, c: c}
		broke := t.look(keys)
		again := false
		if broke != nil {
			// A connection that was idle may have been closed since, so try a new connection.
			again = c.used && c.IsClosed() && ctx.Err() == nil
			err = wrap(broke)
		} else {
			err = do(t)
			broke = t.broke
		}

		if stop() && broke == nil {
			d.conns.put(c)
			return err
		}

		d.conns.drop(c)
		switch {
		case again:
		case broke != nil && ctx.Err() != nil:
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		default:
			return err
		}
	}
}

// Listen implements [rowstore.Notifier].
func (d *database) Listen(group, node string, wake func()) (stop func(), err error) {
	return d.listener.start(group, node, wake), nil
}
