package sqlstore

import (
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

// Sweep removes rows as a transaction at this time does.
func Sweep(db Database, now time.Time) { db.(*database).sweep(now) }
