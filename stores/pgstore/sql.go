package pgstore

import (
	"fmt"
	"hash/fnv"
	"time"
)

// How long a transaction may be in the way of others. A program that stands still while it has the lock
// of a group is cut off by the server: its changes are not saved then.
const (
	standstill = time.Second     // a transaction of which the server hears nothing is ended
	lockWait   = 2 * time.Second // who waits longer for the lock looks whether its holder stands still, see free
)

// sweepMost is how many old rows are removed at once.
const sweepMost = 1000

// begin gives each statement of the transaction a snapshot of its own, whatever the default of the role is.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

// clock is the server's clock. Each function is named with its schema: a role that may create functions in a schema of the
// search_path could otherwise put one of its own in the place of pg_catalog's, by arguments that fit better. An unnest of
// several arrays is pg_catalog's by its syntax, which takes no schema.
const clock = "pg_catalog.clock_timestamp()"

// statements are all statements for one schema, except LOCK, whose table depends on the group.
type statements struct {
	schema                                         string
	begin, read, save, forget, notify, free, sweep string
	attend, present                                string
}

// planning has the server make the plan of a statement once, and never read a whole table: the plan of a small table
// would still be used when the table has become large. A connection has one plan of a statement, so each
// transaction that reads sets it, whether it locks or not.
const planning = `pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true), pg_catalog.set_config('enable_seqscan', 'off', true),
	pg_catalog.set_config('enable_bitmapscan', 'off', true)`

// plan is for reads outside of a transaction: the server takes statements that are sent together for one, with which the settings end.
const plan = "SELECT " + planning

// newStatements returns the statements for a schema, whose name is plain and needs no quotes.
func newStatements(schema string) *statements {
	table := schema + ".budgets"
	return &statements{
		schema: schema,
		// The settings and the time belong to the wait for the lock. The settings end with the transaction, so that PgBouncer can give the
		// connection to others. statement_timeout would end the wait for a synchronous standby, and COMMIT would succeed all the same.
		begin: fmt.Sprintf(`SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '%d', true),
			pg_catalog.set_config('lock_timeout', '%d', true), pg_catalog.set_config('statement_timeout', '0', true), `+planning+`, `+clock,
			standstill.Milliseconds(), lockWait.Milliseconds()),
		// One row for each key, in their order.
		read: `SELECT ` + clock + `, b.generation, b.updates, b.value
			FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS k (key, place) LEFT JOIN LATERAL (
				SELECT generation, updates, value FROM ` + table + ` WHERE key = k.key ORDER BY generation DESC LIMIT 1
			) AS b ON true ORDER BY k.place`,
		save: `INSERT INTO ` + table + ` AS b (key, generation, updates, expires, value)
			SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::timestamptz[], $5::bytea[])
			ON CONFLICT (key, generation) DO UPDATE SET updates = excluded.updates, expires = excluded.expires, value = excluded.value`,
		forget: `DELETE FROM ` + table + ` AS b USING unnest($1::text[], $2::bigint[]) AS k (key, generation)
			WHERE b.key = k.key AND b.generation < k.generation`,
		// To the channels of some nodes, or to the channel of all.
		notify: "SELECT pg_catalog.pg_notify(c, $2) FROM pg_catalog.unnest($1::text[]) AS c",
		// Ends the session that has the lock of a group, if it waits for its program: idle_in_transaction_session_timeout
		// counts only when the server has got all of a trip, and a program may stand still, or its network may fail, when
		// a part of a trip is on its way. A COMMIT that waits for a standby does not wait for its program.
		free: `SELECT pg_catalog.pg_terminate_backend(l.pid) FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a USING (pid)
			WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'ExclusiveLock' AND l.relation = pg_catalog.to_regclass($1)
				AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
				AND a.wait_event_type = 'Client' AND a.state_change < pg_catalog.now() - interval '` + fmt.Sprint(standstill.Milliseconds()) + ` ms'`,
		attend: "SELECT pg_catalog.pg_try_advisory_lock_shared($1)",
		// A lock of a session is in pg_locks as two halves.
		present: `SELECT ` + clock + `, EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND l.objsubid = 1
				AND l.classid = (k.number >> 32 & 4294967295)::oid AND l.objid = (k.number & 4294967295)::oid
				AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
			FROM pg_catalog.unnest($1::bigint[]) WITH ORDINALITY AS k (number, place) ORDER BY k.place`,
		// Rows that a transaction is about to change are left out. The clock is read once, so that the index finds the old rows.
		sweep: `DELETE FROM ` + table + ` WHERE (key, generation) IN (SELECT key, generation FROM ` + table + `
			WHERE expires < (SELECT ` + clock + `) ORDER BY expires LIMIT ` + fmt.Sprint(sweepMost) + ` FOR UPDATE SKIP LOCKED)`,
	}
}

// lockTables is how many tables there are to lock.
const lockTables = 8

// lockTable returns the table that is locked for a group. The table holds nothing, and only roles that may change it can lock it. An advisory lock
// would have no rights: any role that may connect could take and keep it. Transactions that wait for a table get it in turn, which transactions
// that wait for a row do not. Two groups with the same table wait for each other, and have no other disadvantage.
func (s *statements) lockTable(group string) string {
	h := fnv.New64a()
	h.Write([]byte(group))
	return fmt.Sprintf("%s.lock_%d", s.schema, h.Sum64()%lockTables)
}

// lock returns the statement that locks a group. It is a statement of its own, because a statement sees the rows that were saved before it began:
// the next statement reads the rows and the clock after the wait for the lock.
func (s *statements) lock(group string) string {
	return "LOCK TABLE " + s.lockTable(group) + " IN EXCLUSIVE MODE"
}

// session returns the number of the advisory lock that shows that a node lives, for as long as its session lasts. Every role may take an advisory
// lock. But the number is as random as the node's, so nobody can have the lock first. And the lock is shared: a stranger that takes it, too, only
// makes other nodes wait for the lease of a node that has died.
func (s *statements) session(node string) int64 {
	h := fnv.New64a()
	h.Write([]byte(s.schema + "/" + node))
	return int64(h.Sum64())
}

// channel is the channel of messages to all nodes.
func (s *statements) channel() string { return s.schema + "_news" }

// channelOf is the channel of messages to one node, so that they wake that program alone. Its name has at most 60 bytes, of 63 that are possible.
func (s *statements) channelOf(node string) string {
	if node == everyone {
		return s.channel()
	}
	return s.schema + "_" + node
}

// channels returns the channels of some nodes.
func (s *statements) channels(nodes []string) []string {
	all := make([]string, len(nodes))
	for i, node := range nodes {
		all[i] = s.channelOf(node)
	}
	return all
}
