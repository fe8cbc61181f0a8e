package node

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A SavedRow is a row as bytes. A row without bytes does not exist.
type SavedRow struct {
	Key     ledger.Key
	Expires int64 // the row's Expiry
	Bytes   []byte
}

// A Table is rows as a node knows them. It implements [Rows] for all steps and looks, one at a time.
type Table struct {
	all  map[ledger.Key]*entry
	load func([]ledger.Key) ([][]byte, error) // returns rows that the table does not know. If load is nil, the table knows all rows.

	// Of the step or look that goes on.
	now      int64
	asked    time.Time
	received time.Time
	heard    Heard
	changes  bool // it is a step
	touched  []*entry
	err      error
}

// An entry is a row. It is read from its bytes when it is asked for.
type entry struct {
	SavedRow
	row     *ledger.Row // nil until somebody asks for it
	touched bool        // by the step that goes on
	next    []byte      // the bytes after the step that goes on
}

// NewTable returns a table without rows. Load returns the bytes of rows that the table was not
// given, none for a row that does not exist; if load is nil, the table is given all rows that there are.
func NewTable(load func([]ledger.Key) ([][]byte, error)) Table {
	return Table{all: make(map[ledger.Key]*entry), load: load}
}

// Take sets a row of the table. It copies the bytes.
func (t *Table) Take(saved *SavedRow) {
	e := t.all[saved.Key]
	if e == nil {
		e = t.add(saved.Key)
	}
	e.row, e.Expires = nil, saved.Expires
	e.Bytes = append(e.Bytes[:0], saved.Bytes...)
}

// add adds an entry for a row without bytes.
func (t *Table) add(key ledger.Key) *entry {
	e := &entry{SavedRow: SavedRow{Key: key}}
	t.all[key] = e
	return e
}

// Begin begins a step, if changes is true, or a look, at the time now of the store's clock. The node asked for that time at asked, and had it at received.
func (t *Table) Begin(now int64, asked, received time.Time, changes bool) {
	t.now, t.asked, t.received, t.heard, t.changes, t.err = now, asked, received, Heard{}, changes, nil
}

// Hear notes what other nodes have done, for the step that goes on.
func (t *Table) Hear(h Heard) { t.heard.Add(h) }

// Heard implements [Rows].
func (t *Table) Heard() Heard { return t.heard }

// Now implements [Rows].
func (t *Table) Now() int64 { return t.now }

// Asked implements [Rows].
func (t *Table) Asked() time.Time { return t.asked }

// Received implements [Rows].
func (t *Table) Received() time.Time { return t.received }

// Fetch implements [Rows].
func (t *Table) Fetch(charges []store.Charge) {
	// Row itself loads a single row.
	if t.load == nil || len(charges) < 2 {
		return
	}

	var keys []ledger.Key
	for i := range charges {
		if k := charges[i].Budget.Key; t.all[k] == nil && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}

	if len(keys) > 0 {
		t.fetch(keys)
	}
}

// fetch loads rows that the table does not know.
func (t *Table) fetch(keys []ledger.Key) {
	values, err := t.load(keys)

	// After an error nothing is saved: see Err. Until the step is over, the rows are taken not to exist.
	if err != nil {
		t.err = errors.Join(t.err, err)
		values = make([][]byte, len(keys))
	}
	for i, k := range keys {
		t.add(k).Bytes = values[i]
	}
}

// Row implements [Rows].
func (t *Table) Row(key ledger.Key, create bool) *ledger.Row {
	// Load the row if Fetch has not.
	e := t.all[key]
	if e == nil && t.load != nil {
		t.fetch([]ledger.Key{key})
		e = t.all[key]
	}

	missing := e == nil || e.row == nil && len(e.Bytes) == 0
	if missing && !create {
		return nil
	}
	if e == nil {
		e = t.add(key)
	}

	// A row is read from its bytes only if somebody asks for it.
	if e.row == nil {
		e.row = new(ledger.Row)
		if len(e.Bytes) > 0 {
			if err := e.row.UnmarshalBinary(e.Bytes); err != nil {
				t.err = errors.Join(t.err, fmt.Errorf("of a budget: %w", err))

				// The next look must read the bytes again, and have the error, too. After a step, End drops the row.
				if !t.changes {
					e.row = nil
					return new(ledger.Row)
				}
			}
		}
	}

	// A step may change each row that it has asked for: see Changed.
	if t.changes && !e.touched {
		e.touched = true
		t.touched = append(t.touched, e)
	}

	return e.row
}

// Err implements [Rows].
func (t *Table) Err() error { return t.err }

// Changed returns the rows that a step has changed, as bytes, or the error of a row that could not be loaded, read or written. End takes the bytes over when they
// are saved.
func (t *Table) Changed() (all []SavedRow, err error) {
	if t.err != nil {
		return nil, t.err
	}

	for _, e := range t.touched {
		b, err := e.row.MarshalBinary()
		if err != nil {
			return nil, err
		}

		// The step has asked for the row. It has changed the row only if the bytes differ.
		e.next = nil
		if !bytes.Equal(b, e.Bytes) {
			e.next = b
			all = append(all, SavedRow{e.Key, e.row.Expiry(), b})
		}
	}

	return all, nil
}

// End ends a step. saved says whether what Changed returned was saved: if not, the rows are read anew from the old bytes.
func (t *Table) End(saved bool) {
	for _, e := range t.touched {
		if saved && e.next != nil {
			e.Bytes, e.Expires = e.next, e.row.Expiry()
		}

		// The bytes of a row in which callers wait may list fewer of them than the row does: read the row anew, as other nodes do.
		if !saved || e.row.Busy() {
			e.row = nil
		}
		e.next, e.touched = nil, false

		// Forget an entry that was made only because the step asked for a row that does not exist.
		if e.row == nil && len(e.Bytes) == 0 {
			delete(t.all, e.Key)
		}
	}

	clear(t.touched)
	t.touched = t.touched[:0]
}

// IsBefore reports whether a row of the table is in an earlier state than the same row in a known table. Rows that only one of the tables has, or that cannot be
// read, are left out.
func (t *Table) IsBefore(known *Table) bool {
	for key, was := range known.all {
		is := t.all[key]
		if is == nil || len(is.Bytes) == 0 || len(was.Bytes) == 0 {
			continue
		}

		var now, before ledger.Row
		if now.UnmarshalBinary(is.Bytes) == nil && before.UnmarshalBinary(was.Bytes) == nil && now.IsBefore(&before) {
			return true
		}
	}

	return false
}

// IsLeased reports whether a node has a lease in a row of the table that is not over at the time now of the store's clock. Rows that cannot be read are left out.
func (t *Table) IsLeased(node, now int64) bool {
	for _, e := range t.all {
		var row ledger.Row
		if row.UnmarshalBinary(e.Bytes) == nil && row.LeaseEnd(node) > now {
			return true
		}
	}
	return false
}

// keepExpired is for how many microseconds a row is kept after it has expired: a limit with a longer window may come.
const keepExpired = 60_000_000

// Matters returns for how many microseconds, counted from the time now of the store's clock, the row still matters. It can be forgotten if the result is
// 0 or less.
func (r *SavedRow) Matters(now int64) int64 { return r.Expires + keepExpired - now }

// Live returns the rows that still matter at the time now of the store's clock.
func (t *Table) Live(now int64) iter.Seq[SavedRow] {
	return func(yield func(SavedRow) bool) {
		for _, e := range t.all {
			if len(e.Bytes) > 0 && e.Matters(now) > 0 && !yield(e.SavedRow) {
				return
			}
		}
	}
}
