package pgstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long a transaction may be in the way of others. A program that stands still while it has the lock
// of a group is cut off by the server: its changes are not saved then.
const (
	standstill = time.Second     // the server ends a transaction from which it gets nothing for this long
	lockWait   = 2 * time.Second // after this wait for the lock a transaction looks whether the holder stands still: see free

	// answerWait is how long before the end of its time a transaction ends its wait for the lock. Otherwise the end of the time would cost the
	// connection, and where many programs wait, new connections would leave the server no time for transactions.
	answerWait = 500 * time.Millisecond
)

// maxSwept is how many old rows are removed at once.
const maxSwept = 1000

// begin gives each statement of the transaction a snapshot of its own, whatever the default of the role is.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

// clock is the server's clock. Each function is named with its schema: a role that may create functions in a schema of the
// search_path could otherwise put one of its own in the place of pg_catalog's, by arguments that fit better. An unnest of
// several arrays is pg_catalog's by its syntax, which takes no schema.
const clock = "pg_catalog.clock_timestamp()"

// statements are all statements for one schema, except LOCK, whose table depends on the group.
type statements struct {
	schema                                            string
	settings, read, save, forget, notify, free, sweep string
	attend, present                                   string
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
		// Makes the settings of the transaction, and reads the clock before the wait for the lock. $1 bounds that wait. The settings end with the
		// transaction, so that PgBouncer can give the connection to others. A statement_timeout would end the wait for a synchronous standby, and COMMIT would succeed
		// all the same.
		settings: fmt.Sprintf(`SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', '%d', true),
			pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', '0', true), `+planning+`, `+clock,
			standstill.Milliseconds()),
		// Reads the clock, and one row for each key, in their order: the row's last generation, or NULLs.
		read: `SELECT ` + clock + `, b.generation, b.updates, b.value
			FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS k (key, place) LEFT JOIN LATERAL (
				SELECT generation, updates, value FROM ` + table + ` WHERE key = k.key ORDER BY generation DESC LIMIT 1
			) AS b ON true ORDER BY k.place`,
		save: `INSERT INTO ` + table + ` AS b (key, generation, updates, expires, value)
			SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::timestamptz[], $5::bytea[])
			ON CONFLICT (key, generation) DO UPDATE SET updates = excluded.updates, expires = excluded.expires, value = excluded.value`,
		// Removes the generations of rows before the given ones.
		forget: `DELETE FROM ` + table + ` AS b USING unnest($1::text[], $2::bigint[]) AS k (key, generation)
			WHERE b.key = k.key AND b.generation < k.generation`,
		// Sends a message to some channels.
		notify: "SELECT pg_catalog.pg_notify(c, $2) FROM pg_catalog.unnest($1::text[]) AS c",
		// Ends the session that has the lock of a group, if it waits for its program: idle_in_transaction_session_timeout
		// counts only when the server has got all of a trip, and a program may stand still, or its network may fail, when
		// a part of a trip is on its way. A COMMIT that waits for a standby does not wait for its program.
		free: `SELECT pg_catalog.pg_terminate_backend(l.pid) FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a USING (pid)
			WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'ExclusiveLock' AND l.relation = pg_catalog.to_regclass($1)
				AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
				AND a.wait_event_type = 'Client' AND a.state_change < pg_catalog.now() - interval '` + fmt.Sprint(standstill.Milliseconds()) + ` ms'`,
		// Takes the lock that shows that a node lives.
		attend: "SELECT pg_catalog.pg_try_advisory_lock_shared($1)",
		// Reads the clock, and for each number whether a session has the lock of that number. pg_locks has the number as two halves. The locks are read
		// once, and not for each number: many nodes ask, and each asks about all others.
		present: `SELECT ` + clock + `, k.number IN (SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_catalog.pg_locks AS l
				WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND l.objsubid = 1
				AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()))
			FROM pg_catalog.unnest($1::bigint[]) WITH ORDINALITY AS k (number, place) ORDER BY k.place`,
		// Removes old rows, except rows that a transaction is about to change. The clock is read once, so that the index finds the old rows.
		sweep: `DELETE FROM ` + table + ` WHERE (key, generation) IN (SELECT key, generation FROM ` + table + `
			WHERE expires < (SELECT ` + clock + `) ORDER BY expires LIMIT ` + fmt.Sprint(maxSwept) + ` FOR UPDATE SKIP LOCKED)`,
	}
}

// lockTables is how many tables there are to lock.
const lockTables = 8

// lockTable returns the table that is locked for a group. The table holds nothing, and only roles that may change it can lock it. An advisory lock
// would have no rights: any role that may connect could take and keep it. A row would not do either: transactions that wait for a table get it in
// turn, and transactions that wait for a row do not. Two groups may have the same table: then their transactions wait for each other.
func (s *statements) lockTable(group string) string {
	h := fnv.New64a()
	h.Write([]byte(group))
	return fmt.Sprintf("%s.lock_%d", s.schema, h.Sum64()%lockTables)
}

// lock returns the statement that locks a group. It reads nothing, because a statement sees only rows that were saved before the statement began:
// the next statement begins after the wait for the lock, and reads the rows and the clock.
func (s *statements) lock(group string) string {
	return "LOCK TABLE " + s.lockTable(group) + " IN EXCLUSIVE MODE"
}

// session returns the number of the advisory lock that shows that a node lives, for as long as its session lasts. Every role may take an advisory
// lock. But the number comes from the random name of the node, so nobody can have the lock first. And the lock is shared: a stranger that takes it, too, only
// makes other nodes wait for the lease of a node that has died.
func (s *statements) session(node string) int64 {
	h := fnv.New64a()
	h.Write([]byte(s.schema + "/" + node))
	return int64(h.Sum64())
}

// channel is the channel of messages to all nodes.
func (s *statements) channel() string { return s.schema + "_news" }

// channelOf is the channel of messages to one node, so that they wake that program alone, or the channel of all for everyone. Its name has at most 60
// bytes, and PostgreSQL allows 63.
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

const (
	sweepEvery = time.Minute
	sweepLong  = 30 * time.Second // no sweep takes longer
)

// A sweeper removes rows that no limit needs any more.
type sweeper struct {
	conns *conns
	sql   *statements
	next  atomic.Int64 // when the next sweep is due, in nanoseconds of this program's clock
}

// sweepSometimes removes old rows in a goroutine, if the next sweep is due: about once a minute. Each saved transaction calls it.
func (s *sweeper) sweepSometimes() {
	now := time.Now()
	next := s.next.Load()
	if now.UnixNano() < next {
		return
	}

	// The time of the next sweep is random, so that programs that began together do not sweep together.
	later := now.Add(sweepEvery/2 + rand.N(sweepEvery)).UnixNano()

	// One of several callers sweeps. The first call only sets the time: programs that run for less than that leave the sweep to others.
	if s.next.CompareAndSwap(next, later) && next != 0 {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), sweepLong)
			defer cancel()

			for {
				removed, err := s.sweep(ctx)
				if err != nil || removed < maxSwept {
					return // after an error a later sweep removes the rest
				}
			}
		}()
	}
}

// sweep removes up to maxSwept old rows, and returns how many.
func (s *sweeper) sweep(ctx context.Context) (removed int64, err error) {
	c, err := s.conns.get(ctx)
	if err != nil {
		return 0, err
	}

	done, err := c.Exec(ctx, s.sql.sweep)
	if err != nil {
		s.conns.drop(c)
		return 0, err
	}

	s.conns.put(c)
	return done.RowsAffected(), nil
}

// maxUpdates is after how many updates a row gets a new generation. PostgreSQL keeps each version of a row that an open snapshot may need, and
// walks along the chain of versions to find the last: so a chain has about maxUpdates versions at the most.
const maxUpdates = 100

// A row is a row of the table, which was read or is to be saved.
type row struct {
	key        string
	generation int64
	updates    int32
	value      []byte // nil if there is no row
	expires    time.Time
}

// A tx is a transaction under way, or a look, which reads without a transaction. It implements [rowstore.Tx], [rowstore.Asker] and [rowstore.Waker].
// Its trips to the server need no context: see conn.until.
type tx struct {
	sql   *statements
	c     *conn
	now   time.Time
	asked time.Time
	rows  []row    // the rows that were read
	puts  []row    // the rows to save
	wakes []string // the nodes to wake, in which everyone stands for all nodes of the group
	group string
	broke error // the error of a Get, after which nothing can be saved

	refused bool // the server has refused a statement of save, so that COMMIT saves nothing
}

// everyone stands for all nodes.
const everyone = "*"

// Now implements [rowstore.Tx].
func (t *tx) Now() time.Time { return t.now }

// Asked implements [rowstore.Asker].
func (t *tx) Asked() time.Time { return t.asked }

// Get implements [rowstore.Tx].
func (t *tx) Get(keys ...string) ([][]byte, error) {
	if err := t.fetch(keys); err != nil {
		t.broke = err
		return nil, wrap(err)
	}

	values := make([][]byte, len(keys))
	for i, key := range keys {
		values[i] = t.row(key).value
	}
	return values, nil
}

// fetch reads the rows of keys that were not read before, into t.rows.
func (t *tx) fetch(keys []string) error {
	var missing []string
	for _, key := range keys {
		if t.row(key) == nil && !slices.Contains(missing, key) {
			missing = append(missing, key)
		}
	}

	if len(missing) == 0 {
		return nil
	}

	// The time of the transaction stays that of its first trip.
	_, err := t.read(missing)
	return err
}

// read reads the clock and rows in one trip, in a transaction or not. It adds the rows to t.rows.
func (t *tx) read(keys []string) (now time.Time, err error) {
	b := new(pgx.Batch)
	b.Queue(plan)
	b.Queue(t.sql.read, keys)
	replies := t.c.SendBatch(context.Background(), b)
	if _, err = replies.Exec(); err == nil {
		now, err = t.readRows(replies, keys)
	}
	return now, endTrip(replies, err)
}

// endTrip ends a trip, in which err was the first error so far, or nil. It returns err or, if that is nil, the error with which the trip ends.
func endTrip(replies pgx.BatchResults, err error) error {
	if last := replies.Close(); err == nil {
		return last
	}
	return err
}

// Put implements [rowstore.Tx].
func (t *tx) Put(key string, value []byte, keep time.Duration) {
	if value == nil {
		value = []byte{} // pgx would send NULL for nil
	}
	t.puts = append(t.puts, row{key: key, value: value, expires: roundUp(t.now.Add(keep), keep)})
}

// Wake implements [rowstore.Waker].
func (t *tx) Wake(nodes ...string) {
	if len(nodes) == 0 {
		nodes = []string{everyone}
	}
	t.wakes = append(t.wakes, nodes...)
}

// row returns the row of a key, or nil if it was not read.
func (t *tx) row(key string) *row {
	for i := range t.rows {
		if t.rows[i].key == key {
			return &t.rows[i]
		}
	}
	return nil
}

// roundUp rounds up t, the time at which a row may be removed that is kept for keep. The column has an index, so it should not
// change in each update. roundUp adds two minutes at the most, or half of keep if that is more.
func roundUp(t time.Time, keep time.Duration) time.Time {
	step := 2 * time.Minute
	for step < keep/4 {
		step *= 2
	}
	return t.Truncate(step).Add(step)
}

// readRows reads the reply to the statement that reads rows, adds the rows to t.rows, and returns the time of the clock.
func (t *tx) readRows(replies pgx.BatchResults, keys []string) (now time.Time, err error) {
	found, err := replies.Query()
	if err != nil {
		return now, err
	}
	defer found.Close()

	// The reply has a row for each key, in their order. The columns of a key without a row are NULL.
	for i := 0; found.Next(); i++ {
		var generation *int64
		var updates *int32
		var value []byte
		if err := found.Scan(&now, &generation, &updates, &value); err != nil {
			return now, err
		}

		r := row{key: keys[i]}
		if generation != nil {
			r.generation, r.updates, r.value = *generation, *updates, value
		}

		t.rows = append(t.rows, r)
	}

	return now, found.Err()
}

// start makes the first trip: it begins the transaction, locks the group, and reads the clock and rows. It waits for the lock for wait at the most, but for
// 1 ms at the least.
func (t *tx) start(keys []string, wait time.Duration) error {
	if len(keys) == 0 {
		keys = []string{""} // without a key the reply has no row, and so no clock
	}

	// readStart reads the replies in the order of these statements.
	b := new(pgx.Batch)
	b.Queue(begin)
	b.Queue(t.sql.settings, strconv.FormatInt(max(1, wait.Milliseconds()), 10)) // the server would take 0 for a wait without end
	t.queuePlans(b, keys)
	b.Queue(t.sql.lock(t.group))
	b.Queue(t.sql.read, keys)
	sent := time.Now()
	replies := t.c.SendBatch(context.Background(), b)
	before, now, err := t.readStart(replies, keys)
	if err = endTrip(replies, err); err != nil {
		return err
	}

	t.now, t.c.planned = now, true

	// The clock was read after the wait for the lock, which took now - before by the server's clock. If that clock was set meanwhile
	// the difference is wrong: keep asked between sent and the reply.
	t.asked = sent.Add(max(0, now.Sub(before)))
	if received := time.Now(); t.asked.After(received) {
		t.asked = received
	}

	return nil
}

// queuePlans has a new session of the server make its plans, and read what it has to know of the tables, before it has the lock: that takes much longer
// than a transaction, and all other programs would wait meanwhile. It queues the four statements of which later trips are made, with nothing to change, or none if the session has
// its plans.
func (t *tx) queuePlans(b *pgx.Batch, keys []string) {
	if !t.c.planned {
		b.Queue(t.sql.read, keys)
		b.Queue(t.sql.save, []string{}, []int64{}, []int32{}, []time.Time{}, [][]byte{})
		b.Queue(t.sql.forget, []string{}, []int64{})
		b.Queue(t.sql.notify, []string{}, "")
	}
}

// readStart reads the replies to the first trip, and returns the times of the server's clock before and after the wait for the lock. It adds the rows to t.rows.
func (t *tx) readStart(replies pgx.BatchResults, keys []string) (before, now time.Time, err error) {
	// BEGIN has no row.
	if _, err := replies.Exec(); err != nil {
		return before, now, err
	}

	// The last column of the settings is the clock.
	if err := replies.QueryRow().Scan(nil, nil, nil, nil, nil, nil, &before); err != nil {
		return before, now, err
	}

	// The replies to the four statements of queuePlans are dropped.
	if !t.c.planned {
		for range 4 {
			if _, err := replies.Exec(); err != nil {
				return before, now, err
			}
		}
	}

	// LOCK has no row. Its reply comes after the wait.
	if _, err := replies.Exec(); err != nil {
		return before, now, err
	}

	now, err = t.readRows(replies, keys)
	return before, now, err
}

// rollBack ends the transaction without saving anything.
func (t *tx) rollBack() error {
	_, err := t.c.Exec(context.Background(), "ROLLBACK")
	return err
}

// save makes the second trip: it saves rows, wakes nodes and commits. Rows that were not read before cost a trip more. If refused is set
// after an error, it is certain that nothing was saved.
func (t *tx) save() error {
	// Forget the warnings of earlier trips.
	t.c.warning = nil
	b := new(pgx.Batch)

	// To save a row its present generation must be known.
	if len(t.puts) > 0 {
		if err := t.fetch(keysOf(t.puts)); err != nil {
			return err
		}
		t.queuePuts(b)
	}

	if len(t.wakes) > 0 {
		nodes := wakesOf(t.wakes)
		b.Queue(t.sql.notify, t.sql.channels(nodes), t.group+" "+strings.Join(nodes, " "))
	}

	b.Queue("COMMIT")
	replies := t.c.SendBatch(context.Background(), b)

	// Read the replies before that of the COMMIT. After the first error COMMIT saves nothing.
	for range b.Len() - 1 {
		if _, err := replies.Exec(); err != nil {
			t.refused = isError(err)
			return endTrip(replies, err)
		}
	}

	tag, err := replies.Exec()
	if err = endTrip(replies, err); err != nil {
		return err
	}

	// The server answers the COMMIT of a failed transaction by ROLLBACK.
	if tag.String() != "COMMIT" {
		return fmt.Errorf("COMMIT was answered by %s", tag)
	}

	// With a warning, for example that somebody has ended the wait for a synchronous standby, the rows may be in this server alone.
	if t.c.warning != nil {
		return fmt.Errorf("COMMIT with a warning: %w", t.c.warning)
	}

	return nil
}

// keysOf returns the keys of rows.
func keysOf(rows []row) []string {
	keys := make([]string, len(rows))
	for i := range rows {
		keys[i] = rows[i].key
	}
	return keys
}

// maxWakes is how many nodes a message names at the most, so that it is not too long.
const maxWakes = 100

// wakesOf returns the nodes that a message names, each once, or everyone alone if that is one of them, or if they are too many. It sorts nodes.
func wakesOf(nodes []string) []string {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) > maxWakes || slices.Contains(nodes, everyone) {
		return []string{everyone}
	}
	return nodes
}

// queuePuts sets the generation of each row to save. It queues the statement that saves the rows, and the statement that removes the former
// generations of rows that get a new one. All rows of puts were fetched before.
func (t *tx) queuePuts(b *pgx.Batch) {
	// The statements take a column of all rows as one argument.
	n := len(t.puts)
	keys, generations, updates := make([]string, n), make([]int64, n), make([]int32, n)
	expires, values := make([]time.Time, n), make([][]byte, n)
	var renewed []string // the keys of rows that get a new generation
	var since []int64    // their new generations
	for i := range t.puts {
		p := &t.puts[i]

		// A new generation begins before the chain of a row's versions becomes long: see maxUpdates. It has a higher number than the last, also
		// if the clock was set back.
		switch r := t.row(p.key); {
		case r.value == nil:
			p.generation = t.now.UnixMicro()
		case r.updates >= maxUpdates:
			p.generation = max(r.generation+1, t.now.UnixMicro())
			renewed, since = append(renewed, p.key), append(since, p.generation)
		default:
			p.generation, p.updates = r.generation, r.updates+1
		}

		keys[i], generations[i], updates[i], expires[i], values[i] = p.key, p.generation, p.updates, p.expires, p.value
	}

	b.Queue(t.sql.save, keys, generations, updates, expires, values)
	if len(renewed) > 0 {
		b.Queue(t.sql.forget, renewed, since)
	}
}

// look reads the clock and rows in one trip, without a lock. The tx is not in a transaction.
func (t *tx) look(keys []string) error {
	if len(keys) == 0 {
		keys = []string{""} // as in start
	}

	t.asked = time.Now()
	now, err := t.read(keys)
	if err != nil {
		return err
	}

	t.now = now
	return nil
}
