package pgstore

import (
	"context"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetthrottle/throttle/rowstore"
)

// Options are those of a store. All programs that share budgets give the same Schema and Rows.
type Options struct {
	// Schema is the schema with the tables. Defaults to "throttle". Programs with different schemas share nothing.
	Schema string

	// Connections is how many connections a program has at the most, besides one that listens for news while callers
	// wait. A group of budgets uses one at a time. Defaults to 4.
	Connections int

	// BeforeConnect may change the configuration of each connection before it is made: a password
	// that is valid for some minutes, for example.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Rows are the options of all stores that keep budgets in rows.
	Rows rowstore.Options
}

const (
	defaultConnections = 4
	connectTimeout     = 5 * time.Second // of URLs that do not say connect_timeout
)

// defaultSchema is the name that schema.sql has.
const defaultSchema = "throttle"

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)
