package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// version is the version of schema.sql.
const version = 2

// errSaving says that a COMMIT is not cancelled.
var errSaving = errors.New("a COMMIT is under way")

// A server is the database server, with a schema.
type server struct {
	config *pgx.ConnConfig
	before func(context.Context, *pgx.ConnConfig) error // see Options.BeforeConnect
	after  func(context.Context, *pgx.Conn) error       // see NewFromPool
	sql    *statements
}

// connect makes a connection to a database that has been set up. If hear is nil, pgx keeps messages for WaitForNotification.
func (s *server) connect(ctx context.Context, hear pgconn.NotificationHandler) (*conn, error) {
	config := s.config.Copy()
	if s.before != nil {
		if err := s.before(ctx, config); err != nil {
			return nil, fmt.Errorf("BeforeConnect: %w", err)
		}
	}

	// A COMMIT that was not replicated succeeds with a warning, so note it.
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
		// pgx dials once more to have the server cancel the statement. A COMMIT that waits for a synchronous standby
		// would succeed then without it.
		if c.saving.Load() {
			return nil, errSaving
		}
		return dial(ctx, network, addr)
	}

	var err error
	if c.Conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}

	// A pool may set the role that has the rights on the tables.
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

// checkVersion looks whether the database has been set up for this package.
func (s *server) checkVersion(ctx context.Context, c *pgx.Conn) error {
	var v int
	err := c.QueryRow(ctx, "SELECT pg_catalog.max(version) FROM "+s.sql.schema+".version", pgx.QueryExecModeSimpleProtocol).Scan(&v)

	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000"):
		return fmt.Errorf("%w: it has no table %s.version; run pgstore.Setup or schema.sql once: %w", errNotSetUp, s.sql.schema, err)
	case errors.As(err, &refused) && refused.Code == "42501":
		return fmt.Errorf("%w: the role %q may not use the tables of schema %s; schema.sql has the rights that it needs: %w", errNotSetUp, s.config.User, s.sql.schema, err)
	case err != nil:
		return err
	case v != version:
		return fmt.Errorf("%w: the tables of schema %s have version %d, and it needs %d", errNotSetUp, s.sql.schema, v, version)
	}

	return nil
}
