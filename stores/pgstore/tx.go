package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// updatesMost is after how many updates a row gets a new generation: that many versions of a row lie in one
// chain at the most, even if a snapshot is held that needs them all.
const updatesMost = 100

// A row was read, or is to be saved.
type row struct {
	key        string
	generation int64
	updates    int32
	value      []byte // nil: there is no row
	expires    time.Time
}

// A tx is a transaction under way. It implements [rowstore.Tx], [rowstore.Asker] and [rowstore.Waker].
type tx struct {
	sql   *statements
	c     *conn
	now   time.Time
	asked time.Time
	rows  []row    // that were read
	puts  []row    // to be saved
	wakes []string // nodes to wake; everyone: all of the group
	group string
	broke error // of a Get: nothing can be saved any more

	refused bool // the server has refused to save a row, so that COMMIT saves nothing
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

// fetch reads the rows of keys that were not read before.
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

	_, err := t.read(missing)
	return err
}

// read reads the clock and rows in a trip of its own, in a transaction or not.
func (t *tx) read(keys []string) (now time.Time, err error) {
	b := new(pgx.Batch)
	b.Queue(plan)
	b.Queue(t.sql.read, keys)
	replies := t.c.SendBatch(context.Background(), b)
	if _, err = replies.Exec(); err == nil {
		now, err = t.readRows(replies, keys)
	}
	return now, closed(replies, err)
}

// closed ends a trip. Its error is the first one of the trip: pgx returns it once more at the end.
func closed(replies pgx.BatchResults, err error) error {
	if last := replies.Close(); err == nil {
		return last
	}
	return err
}

// Put implements [rowstore.Tx].
func (t *tx) Put(key string, value []byte, keep time.Duration) {
	if value == nil {
		value = []byte{}
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

// roundUp rounds the time at which a row may be removed, by at most half of the time for which it is kept or
// two minutes: the column has an index, so it should not change in each update.
func roundUp(t time.Time, keep time.Duration) time.Time {
	step := 2 * time.Minute
	for step < keep/4 {
		step *= 2
	}
	return t.Truncate(step).Add(step)
}

// readRows takes in the reply to the statement that reads rows, and returns the time of the clock.
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

// start makes the first trip: it locks the group, and reads the clock and rows.
func (t *tx) start(keys []string) error {
	if len(keys) == 0 {
		keys = []string{""} // for the clock
	}

	// The order of the statements is the order in which started takes in the replies.
	b := new(pgx.Batch)
	b.Queue(begin)
	b.Queue(t.sql.begin)
	b.Queue(t.sql.lock(t.group))
	b.Queue(t.sql.read, keys)
	sent := time.Now()
	replies := t.c.SendBatch(context.Background(), b)
	before, now, err := t.started(replies, keys)
	if err = closed(replies, err); err != nil {
		return err
	}

	t.now = now

	// The clock was read after the wait for the lock, which took as long as the server's clock says. A clock that
	// was set meanwhile cannot make the moment later than the reply.
	t.asked = sent.Add(max(0, now.Sub(before)))
	if received := time.Now(); t.asked.After(received) {
		t.asked = received
	}

	return nil
}

// started takes in the replies to the first trip, and returns the times before and after the wait for the lock.
func (t *tx) started(replies pgx.BatchResults, keys []string) (before, now time.Time, err error) {
	// BEGIN has no row.
	if _, err := replies.Exec(); err != nil {
		return before, now, err
	}

	// The last column of the settings is the clock.
	if err := replies.QueryRow().Scan(nil, nil, nil, nil, nil, nil, &before); err != nil {
		return before, now, err
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

// save makes the second trip: it saves rows, wakes nodes and commits.
func (t *tx) save() error {
	t.c.warning = nil
	b := new(pgx.Batch)

	// The generation of a row that is saved must be known.
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

	// The first statement that fails says why, and COMMIT saves nothing then.
	for range b.Len() - 1 {
		if _, err := replies.Exec(); err != nil {
			t.refused = isError(err)
			return closed(replies, err)
		}
	}

	tag, err := replies.Exec()
	if err = closed(replies, err); err != nil {
		return err
	}

	// The server answers the COMMIT of a failed transaction by ROLLBACK.
	if tag.String() != "COMMIT" {
		return fmt.Errorf("COMMIT was answered by %s", tag)
	}

	// The wait for a synchronous standby was ended, for example.
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

// wakesMost is how many nodes a message names at the most, so that it is not too long.
const wakesMost = 100

// wakesOf returns the nodes that a message names, each once, or everyone if they are too many.
func wakesOf(nodes []string) []string {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	if len(nodes) > wakesMost || slices.Contains(nodes, everyone) {
		return []string{everyone}
	}
	return nodes
}

// queuePuts queues the statement that saves rows, and the statement that removes the former generations of rows that get a new one.
func (t *tx) queuePuts(b *pgx.Batch) {
	// The statements take a column of all rows as one argument.
	n := len(t.puts)
	keys, generations, updates := make([]string, n), make([]int64, n), make([]int32, n)
	expires, values := make([]time.Time, n), make([][]byte, n)
	var renewed []string
	var since []int64
	for i := range t.puts {
		p := &t.puts[i]

		// A new generation begins before the chain of a row's versions becomes long: see updatesMost.
		switch r := t.row(p.key); {
		case r.value == nil:
			p.generation = t.now.UnixMicro()
		case r.updates >= updatesMost:
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
		keys = []string{""}
	}

	t.asked = time.Now()
	now, err := t.read(keys)
	if err != nil {
		return err
	}

	t.now = now
	return nil
}
