// Package rowstore shares budgets through rows of a database: PostgreSQL, MySQL, or one that nobody
// has thought of here. It is what all such stores have in common. What is special to a database is a
// [Database], which runs transactions: usually a hundred lines.
//
// Modules pgstore and sqlstore have Databases that are ready to use. docs/your-own-store.md says how to write
// another one, for etcd, DynamoDB, Spanner, or a service of one's own; package rowtest tests it.
package rowstore

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// A Store is a [throttle.Store] that keeps budgets in rows of a database, which other programs use at
// the same time. Make one with [New]. It is safe for concurrent use. There is nothing to close but the
// database.
type Store struct {
	*nodestore.Store
}

// Options are those of a [Store]. All programs that share budgets give the same ones.
type Options struct {
	// Name is what the names of groups and rows begin with. Programs with different names share
	// nothing. Defaults to "throttle".
	Name string

	// Groups has budgets in one group only if one request may need them together. Then a
	// transaction for one API does not wait for one of another API. Which budgets are in one group depends on the
	// hosts in the policies, so all programs must have the same policies: a budget that gets
	// into another group begins anew. Without Groups all budgets are in one group; that is enough for
	// most, because callers that come together share a transaction.
	Groups bool

	// ManyClocks is for a database that has no clock of its own, whose Tx.Now is the clock of
	// the program, and for one whose servers have a clock each. The Store then lets time stand still until it is later than
	// the latest time that any node has seen. A node whose clock is more than a minute behind gets a
	// *ClockError, because nobody knows whose clock is wrong.
	ManyClocks bool

	// Lease is for how long a program is believed to live that says nothing: after that, what it held
	// of Concurrency budgets is free, and its callers have left their lines. A program says something ten times in that
	// time while it waits for something or holds something. Defaults to 10 s.
	Lease time.Duration
}

const (
	defaultName  = "throttle"
	defaultLease = 10 * time.Second
)

// New returns a store whose budgets are rows of a database. Nil Options are the defaults.
func New(db Database, o *Options) *Store {
	var with Options
	if o != nil {
		with = *o
	}
	if with.Name == "" {
		with.Name = defaultName
	}
	if with.Lease <= 0 {
		with.Lease = defaultLease
	}
	node := nodestore.Options{
		Node:       ledger.Node{ID: nodestore.NewNode(), Lease: with.Lease.Microseconds()},
		RenewEvery: with.Lease / 10,
	}
	if a, ok := db.(arriver); ok {
		node.Arrivals = a.Arrivals()
	}
	return &Store{nodestore.New(newBackend(db, node.Node.ID, with), node)}
}

// An arriver is a Database of a test whose stores count arrivals together, as if no two callers came
// within a microsecond. Others cannot implement it.
type arriver interface{ Arrivals() *ledger.Arrivals }

// nameMost is how many bytes of a name stand in keys.
const nameMost = 32

// plain returns a name as it stands in keys: itself, or a hash of it if it is long or has bytes that
// keys do not have.
func plain(name string) string {
	ok := len(name) <= nameMost
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if ok {
		return name
	}
	return hashed(name)
}

func hashed(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}
