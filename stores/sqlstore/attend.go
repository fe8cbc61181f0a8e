package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// connsLeast is how many connections a pool has at the least that can do without the one that shows that the program lives.
const connsLeast = 4

// errFewConns says that the pool needs its connections for transactions.
var errFewConns = errors.New("sqlstore: the pool has too few connections for a session of the program")

// lockName returns the name of the lock that shows that a node lives. Every user may take a lock, but the name has the node's random number, which
// stands in rows alone. A stranger that holds the lock of a node that has died only makes other nodes wait for its lease.
func lockName(node string) string { return "throttle/" + node }

// Attend implements [rowstore.Attender]. The server frees the lock of a node when its session ends.
func (d *database) Attend(ctx context.Context, node string) (rowstore.Session, error) {
	if most := d.db.Stats().MaxOpenConnections; most > 0 && most < connsLeast {
		return nil, errFewConns
	}

	s, err := d.session(ctx)
	if err != nil {
		return nil, fail(err)
	}

	a := &attendance{session: s, own: lockName(node)}
	if _, _, err := a.Present(ctx, nil); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// An attendance implements [rowstore.Session] by a lock with a name. Its session is never sound: the pool closes the connection, and with it the
// lock is free.
type attendance struct {
	session *session
	own     string
	held    bool // the session has the lock
}

// Present implements [rowstore.Session].
func (a *attendance) Present(ctx context.Context, nodes []string) (present []bool, now time.Time, err error) {
	// One statement asks for all. An earlier session of the node may have the lock until the server has noticed its end.
	var text strings.Builder
	text.WriteString("SELECT " + clock + ", ")
	if a.held {
		text.WriteString("1")
	} else {
		text.WriteString("GET_LOCK(" + literal(a.own) + ", 0)")
	}
	for _, n := range nodes {
		text.WriteString(", IS_FREE_LOCK(" + literal(lockName(n)) + ")")
	}

	var micros int64
	var got sql.NullBool
	free := make([]sql.NullBool, len(nodes))
	to := []any{&micros, &got}
	for i := range free {
		to = append(to, &free[i])
	}

	if err := a.session.conn.QueryRowContext(ctx, text.String()).Scan(to...); err != nil {
		return nil, now, fail(err)
	}

	// The server says NULL if it cannot tell. Then the node counts as present.
	a.held = got.Bool
	for _, f := range free {
		present = append(present, !f.Valid || !f.Bool)
	}
	return present, time.UnixMicro(micros), nil
}

// Close implements [rowstore.Session].
func (a *attendance) Close() { a.session.end() }
