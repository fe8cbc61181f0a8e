package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// Options configure a [Store]. The zero value of each field is useful. All programs that share budgets give the same Schema and the same Rows.
type Options struct {
	// Schema is the schema with the tables. Defaults to "throttle". Programs with different schemas share nothing.
	Schema string

	// Connections is how many connections a program has at the most, besides the connection that listens for news while callers
	// wait. A group of budgets uses one at a time. Defaults to 4.
	Connections int

	// BeforeConnect may change the configuration of each connection before it is made: a password
	// that is valid for some minutes, for example.
	BeforeConnect func(context.Context, *pgx.ConnConfig) error

	// Rows are the options of all stores that keep budgets in rows.
	Rows rowstore.Options

	// afterConnect is the pool's AfterConnect: see NewFromPool.
	afterConnect func(context.Context, *pgx.Conn) error
}

const (
	defaultConnections = 4
	connectTimeout     = 5 * time.Second // of URLs that do not say connect_timeout
)

// defaultSchema is the name that schema.sql has.
const defaultSchema = "throttle"

// check returns all mistakes in the options, except in Rows.
func (o *Options) check() error {
	var mistakes []error
	if o.Schema != "" && !plainName.MatchString(o.Schema) {
		mistakes = append(mistakes, &store.OptionError{
			Package: "pgstore", Option: "Options.Schema",
			Problem: fmt.Sprintf("%q: use a name of at most 48 small letters, digits and _", o.Schema),
		})
	}

	if o.Connections < 0 {
		mistakes = append(mistakes, &store.OptionError{
			Package: "pgstore", Option: "Options.Connections",
			Problem: fmt.Sprintf("%d is negative: use 1 or more, or 0 for %d", o.Connections, defaultConnections),
		})
	}

	return errors.Join(mistakes...)
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)
