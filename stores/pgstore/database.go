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

// syncKey ends the key of a row that makes a transaction wait for a synchronous standby. The rows of a COMMIT without an answer may be in this
// server alone, because somebody has ended its wait for the standby. A transaction that reads such rows and saves nothing would
// not wait for the standby. So it saves this row: its COMMIT then waits for this row and for all that was saved before.
const (
	syncKey  = "/sync"
	syncKeep = time.Hour
)

// maxTries is how many times at the most a transaction is tried.
const maxTries = 5

// errURL is the error of a URL that cannot be read. The error of pgx has the whole URL in a field, and maybe in its text, and so the password.
var errURL = errors.New("pgstore: the URL, or what PGHOST, PGPORT, PGSSLMODE and others of the environment add to it, cannot be read: " +
	"want postgres://user:password@host:port/database?name=value, or keywords and values as in \"host=… dbname=…\"; what was given is not repeated here, because it may hold a password")

// parse returns the configuration that a URL describes. Its error is errURL.
func parse(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	return config, nil
}

// A database implements [rowstore.Database], [rowstore.Reader], [rowstore.Notifier] and [rowstore.Attender].
type database struct {
	server   server
	conns    *conns
	sweeper  sweeper
	listener listener
	unsure   sync.Map // the groups whose last COMMIT had no answer: see syncKey
}

// newDatabase returns the database of a configuration, in which it sets defaults. If the options have mistakes it returns these, and no database. If config is nil
// it returns no database.
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

	// These connections do not listen. PgBouncer may pass messages on to them all the same, and pgx would keep them: drop them.
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

// try makes a transaction on one connection. again says that it is certain that nothing was saved, and that a further try may succeed.
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

	// The error of the connection does not say that ctx has ended.
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}

	return again, err
}

// transact makes a transaction on a connection. again is that of try. sound says that the connection is in no transaction, and can be used again.
func (d *database) transact(ctx context.Context, c *conn, group string, keys []string, do func(rowstore.Tx) error) (again, sound bool, err error) {
	t := &tx{sql: d.server.sql, c: c, group: group}
	if err := t.start(keys, lockWaitIn(ctx)); err != nil {
		// After too long a wait for the lock keep the connection: a new one would cost the server as much as many transactions, just
		// when it is busy.
		if isCode(err, lockNotAvailable) {
			return true, t.rollBack() == nil, wrap(err)
		}

		// Try again also if a connection that was used before is closed: the server was restarted, or a firewall has forgotten the connection.
		return isUndone(err) || c.used && c.IsClosed(), false, wrap(err)
	}

	// After an error of do alone the connection is still good. After a failed Get its state is unknown.
	if err := do(t); err != nil {
		if t.broke != nil {
			return isUndone(t.broke), false, err
		}
		return false, t.rollBack() == nil, err
	}

	// After a COMMIT without an answer, a transaction without rows to save must wait for the standby, too: see syncKey.
	if _, unsure := d.unsure.Load(group); unsure && len(t.puts) == 0 {
		t.Put(group+syncKey, nil, syncKeep)
	}

	// From here on nothing may cancel a statement: see server.connect. After an error saving stays set, because the COMMIT may still be under way.
	c.saving.Store(true)
	if err := t.save(); err != nil {
		if isUndone(err) {
			return true, false, wrap(err)
		}

		// The server has refused a statement before the COMMIT.
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

// lockWaitIn returns how long a transaction may wait for the lock: at most lockWait, and until answerWait before the deadline of ctx. It may be negative.
func lockWaitIn(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return lockWait
	}
	return min(lockWait, time.Until(end)-answerWait)
}

// Read implements [rowstore.Reader].
func (d *database) Read(ctx context.Context, _ string, keys []string, do func(rowstore.Tx) error) error {
	// Each round reads on a different connection. broke is the error of the connection, if it has one, and err the error for the caller.
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
			// A connection that was used before may have been closed since, so try a different one.
			again = c.used && c.IsClosed() && ctx.Err() == nil
			err = wrap(broke)
		} else {
			err = do(t)
			broke = t.broke
		}

		// If ctx has ended the connection is of no use any more: see try.
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
