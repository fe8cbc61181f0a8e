package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// errNoSession says that the connection that listens for a node is gone, or was never there: behind PgBouncer in transaction mode, for example.
var errNoSession = errors.New("pgstore: there is no session of the program")

// A session is the connection of a listener. It has a lock for each node for which it listens, which shows that the node lives: the server frees
// the locks when the session ends. One goroutine hears its messages. When a node asks which nodes are present, that goroutine asks the server
// between two messages.
type session struct {
	sql  *statements
	c    *conn
	held map[int64]bool // the locks that the session has; only the goroutine that hears uses it
	over chan struct{}  // closed at the end of the session

	mu        sync.Mutex
	questions []*question
	interrupt func() // ends the wait for a message
}

// A question asks which nodes have sessions.
type question struct {
	own     int64       // the number of the lock of the node that asks
	numbers []int64     // the numbers of the locks of the nodes in question
	answer  chan answer // has room for one
}

// An answer says which of a question's nodes have sessions.
type answer struct {
	present []bool    // in the order of the question's numbers
	now     time.Time // the time of the server's clock. It is zero if the question has no numbers.
	err     error
}

// newSession returns a session without locks on a connection.
func newSession(sql *statements, c *conn) *session {
	return &session{sql: sql, c: c, held: make(map[int64]bool), over: make(chan struct{}), interrupt: func() {}}
}

// end tells all callers of Present that there will be no answer.
func (s *session) end() { close(s.over) }

// hear waits for a message and returns it. It answers questions meanwhile. After an error the session is over.
func (s *session) hear(ctx context.Context) (*pgconn.Notification, error) {
	// A connection does one thing at a time: a question ends the wait for a message, and the next round answers it.
	for {
		within, interrupt := context.WithCancel(ctx)
		if err := s.answer(ctx, s.takeQuestions(interrupt)); err != nil {
			interrupt()
			return nil, err
		}

		// Only a question ends within before ctx. The connection must have survived that.
		n, err := s.c.WaitForNotification(within)
		interrupted := within.Err() != nil && ctx.Err() == nil && !s.c.IsClosed()
		interrupt() // frees what within holds

		// A message may have come at the moment of the interruption.
		if n != nil {
			return n, nil
		}
		if err != nil && !interrupted {
			return nil, err
		}
	}
}

// takeQuestions returns the questions that came since its last call. From now on a new question calls interrupt.
func (s *session) takeQuestions(interrupt func()) []*question {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.questions
	s.questions, s.interrupt = nil, interrupt
	return asked
}

// answer answers questions. After an error the session is over, and the rest has no answer.
func (s *session) answer(ctx context.Context, asked []*question) error {
	for _, q := range asked {
		a := s.find(ctx, q)
		q.answer <- a

		// Messages still arrive if only a right for the locks is missing.
		if a.err != nil && !isError(a.err) {
			return a.err
		}
	}
	return nil
}

// find returns the answer to a question. Before, it tries to take the lock of the node that asks if the session does not have it yet.
func (s *session) find(ctx context.Context, q *question) (a answer) {
	ctx, stop := context.WithTimeout(ctx, probeWait)
	defer stop()

	// The server refuses the lock only while a stranger asks for an exclusive lock: the next question tries again.
	if !s.held[q.own] {
		var got bool
		if a.err = s.c.QueryRow(ctx, s.sql.attend, q.own).Scan(&got); a.err != nil {
			return a
		}
		s.held[q.own] = got
	}

	rows, err := s.c.Query(ctx, s.sql.present, q.numbers)
	if err != nil {
		return answer{err: err}
	}
	defer rows.Close()

	for rows.Next() {
		var isPresent bool
		if a.err = rows.Scan(&a.now, &isPresent); a.err != nil {
			return a
		}
		a.present = append(a.present, isPresent)
	}
	a.err = rows.Err()
	return a
}

// Attend implements [rowstore.Attender]. While the listener has no connection that listens for the node, the error is errNoSession. Other errors are
// those of Present.
func (d *database) Attend(ctx context.Context, node string) (rowstore.Session, error) {
	d.listener.mu.Lock()
	s := d.listener.session
	if !slices.Contains(d.listener.listensFor, node) {
		s = nil
	}
	d.listener.mu.Unlock()
	if s == nil {
		return nil, errNoSession
	}

	// A question without other nodes has the server take this node's lock. If the server refuses the lock for now there is no error: see find.
	a := &attendance{s, d.server.sql.session(node)}
	if _, _, err := a.Present(ctx, nil); err != nil {
		return nil, err
	}
	return a, nil
}

// An attendance implements [rowstore.Session] for one node.
type attendance struct {
	session *session
	own     int64 // the number of the node's lock
}

// Present implements [rowstore.Session]. The goroutine of the listener asks the server: see session. If the session ends first, the error is
// errNoSession.
func (a *attendance) Present(ctx context.Context, nodes []string) (present []bool, now time.Time, err error) {
	q := &question{own: a.own, answer: make(chan answer, 1)}
	for _, n := range nodes {
		q.numbers = append(q.numbers, a.session.sql.session(n))
	}

	a.session.mu.Lock()
	a.session.questions = append(a.session.questions, q)
	a.session.interrupt()
	a.session.mu.Unlock()

	// When the connection is gone, the listener ends the session, and nobody answers.
	select {
	case found := <-q.answer:
		return found.present, found.now, found.err
	case <-a.session.over:
		return nil, now, errNoSession
	case <-ctx.Done():
		return nil, now, context.Cause(ctx)
	}
}

// Close implements [rowstore.Session]. The connection is the listener's, and ends with the listener.
func (a *attendance) Close() {}

// version is the version of schema.sql.
const version = 2

// errSaving says why pgx may not cancel a statement: see server.connect.
var errSaving = errors.New("a COMMIT is under way")

// A server is the database server, with a schema.
type server struct {
	config *pgx.ConnConfig
	before func(context.Context, *pgx.ConnConfig) error // see Options.BeforeConnect
	after  func(context.Context, *pgx.Conn) error       // see NewFromPool
	sql    *statements
}

// configOf returns the configuration of a new connection, after BeforeConnect has changed it. Its error is that of BeforeConnect.
func (s *server) configOf(ctx context.Context) (*pgx.ConnConfig, error) {
	config := s.config.Copy()
	if s.before != nil {
		if err := s.before(ctx, config); err != nil {
			return nil, fmt.Errorf("BeforeConnect: %w", err)
		}
	}
	return config, nil
}

// connect makes a connection, and returns an error if the database is not set up for this version. hear is called with the messages of channels. If
// hear is nil, pgx keeps them for WaitForNotification.
func (s *server) connect(ctx context.Context, hear pgconn.NotificationHandler) (*conn, error) {
	config, err := s.configOf(ctx)
	if err != nil {
		return nil, err
	}

	// Note warnings: a COMMIT that was not replicated succeeds with one.
	c := new(conn)
	config.OnNotification = hear
	notice := config.OnNotice
	config.OnNotice = func(pc *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			c.warning = (*pgconn.PgError)(n)
		}
		if notice != nil {
			notice(pc, n)
		}
	}

	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		// When pgx gives a statement up, it dials once more to have the server cancel the statement. A COMMIT that waits for a synchronous standby
		// would then succeed without the standby.
		if c.saving.Load() {
			return nil, errSaving
		}
		return dial(ctx, network, addr)
	}

	if c.Conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}

	// AfterConnect of a pool may set the role that has the rights on the tables, so it comes before the check.
	if s.after != nil {
		err = s.after(ctx, c.Conn)
	}
	if err == nil {
		err = s.checkVersion(ctx, c.Conn)
	}

	if err != nil {
		closeNow(c)
		return nil, err
	}

	return c, nil
}

// checkVersion returns an error unless the database has been set up for this version of the package.
func (s *server) checkVersion(ctx context.Context, c *pgx.Conn) error {
	// The statement is sent once for each connection. To prepare it would be a trip more.
	var v int
	err := c.QueryRow(ctx, "SELECT coalesce(pg_catalog.max(version), 0) FROM "+s.sql.schema+".version", pgx.QueryExecModeSimpleProtocol).Scan(&v)

	// 42P01 is a missing table, 3F000 a missing schema, and 42501 a missing right.
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000"):
		return fmt.Errorf("%w: it has no table %s.version; run pgstore.Setup or schema.sql once: %w", errNotSetUp, s.sql.schema, err)
	case errors.As(err, &refused) && refused.Code == "42501":
		return fmt.Errorf("%w: the role %q may not use the tables of schema %s; schema.sql has the rights that it needs: %w", errNotSetUp, c.Config().User, s.sql.schema, err)
	case err != nil:
		return err

	// The rows were not copied with the tables.
	case v == 0:
		return fmt.Errorf("%w: its table %s.version is empty; run pgstore.Setup or schema.sql once", errNotSetUp, s.sql.schema)
	case v != version:
		return fmt.Errorf("%w: the tables of schema %s have version %d, and it needs %d", errNotSetUp, s.sql.schema, v, version)
	}

	return nil
}

// A conn is a connection, used by one goroutine at a time.
type conn struct {
	*pgx.Conn
	idleSince time.Time
	used      bool        // it was used before, so it may have been lost since
	planned   bool        // its session has the plans of a transaction: see queuePlans
	warning   error       // the last warning of the server, or nil: see save
	saving    atomic.Bool // a COMMIT is under way, or has had no answer
}

// isDirect reports whether no pooler is between the program and the server: a pooler tells its clients process numbers of its own.
func (c *conn) isDirect(ctx context.Context) (bool, error) {
	var pid uint32
	err := c.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return err == nil && pid == c.PgConn().PID(), err
}

// until makes all waits for the server fail when ctx ends, unless stop was called before. stop returns false if ctx has ended first: then the connection
// cannot be used any longer. With a context for each trip, pgx would need a goroutine for each.
func (c *conn) until(ctx context.Context) (stop func() bool) {
	server := c.PgConn().Conn()
	return context.AfterFunc(ctx, func() { _ = server.SetDeadline(time.Unix(1, 0)) })
}

// closeNow closes a connection without waiting for the server.
func closeNow(c *conn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(ctx) // whatever the error, the connection is closed
}
