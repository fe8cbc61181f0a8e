package sqlstore

import (
	"database/sql"

	"github.com/fleetthrottle/throttle/rowstore"
)

// A Database is what [MySQL] makes a store of.
type Database interface {
	rowstore.Database
	rowstore.Reader
}

// NewDatabase returns the Database of [MySQL].
func NewDatabase(db *sql.DB) Database { return &database{db: db} }

const Standstill = standstill
