package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A Database is what [New] makes a store of.
type Database interface {
	rowstore.Database
	rowstore.Reader
}

// NewDatabase returns the Database of [New].
func NewDatabase(db *sql.DB) Database { return &database{db: db} }

const Standstill = standstill

// MaxRepeats and Repeat are of the tries of one transaction.
const MaxRepeats = maxRepeats

func Repeat(ctx context.Context, try func() (bool, error)) error { return repeat(ctx, try) }

// Sweep removes rows as a transaction at this time does.
func Sweep(db Database, now time.Time) { db.(*database).sweep(now) }
