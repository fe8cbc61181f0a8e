package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
)

// linger is for how many microseconds a row is kept that no limit needs: a longer one may come.
const linger = 60_000_000

// rows are all rows of a file, as a process knows them.
type rows struct {
	all   map[ledger.Key]*entry
	ahead int64 // of the clock, as the last record says

	// Of the step or look that goes on.
	now     int64
	asked   time.Time
	changes bool // it is a step
	touched []*entry
	err     error
}

// An entry is a row. It is read from its bytes when it is asked for.
type entry struct {
	savedRow
	row     *ledger.Row // nil: not read yet
	touched bool        // by the step that goes on
	next    []byte      // the bytes after the step that goes on
}

func (r *rows) clear() {
	*r = rows{all: make(map[ledger.Key]*entry)}
}

// take takes in a record.
func (r *rows) take(rec *record) {
	r.ahead = rec.ahead
	for i := range rec.rows {
		saved := &rec.rows[i]
		e := r.all[saved.key]
		if e == nil {
			e = &entry{savedRow: savedRow{key: saved.key}}
			r.all[saved.key] = e
		}
		e.row, e.expires = nil, saved.expires
		e.bytes = append(e.bytes[:0], saved.bytes...)
	}
}

// begin begins a step, or a look.
func (r *rows) begin(now int64, asked time.Time, changes bool) {
	r.now, r.asked, r.changes, r.err = now, asked, changes, nil
}

// Now implements [nodestore.Rows].
func (r *rows) Now() int64 { return r.now }

// Asked implements [nodestore.Rows].
func (r *rows) Asked() time.Time { return r.asked }

// Row implements [nodestore.Rows].
func (r *rows) Row(key ledger.Key, make bool) *ledger.Row {
	e := r.all[key]
	if e == nil {
		if !make {
			return nil
		}
		e = &entry{savedRow: savedRow{key: key}}
		r.all[key] = e
	}
	if e.row == nil {
		e.row = new(ledger.Row)
		if len(e.bytes) > 0 {
			if err := e.row.UnmarshalBinary(e.bytes); err != nil {
				r.err = errors.Join(r.err, fmt.Errorf("%w: of a budget: %w", errDamaged, err))
			}
		} else if !make {
			e.row = nil
			return nil
		}
	}
	if r.changes && !e.touched {
		e.touched = true
		r.touched = append(r.touched, e)
	}
	return e.row
}

// changed returns the rows that a step has changed.
func (r *rows) changed() (all []savedRow, err error) {
	if r.err != nil {
		return nil, r.err
	}
	for _, e := range r.touched {
		b, err := e.row.MarshalBinary()
		if err != nil {
			return nil, err
		}
		if e.next = nil; !bytes.Equal(b, e.bytes) {
			e.next = b
			all = append(all, savedRow{e.key, e.row.Expiry(), b})
		}
	}
	return all, nil
}

// end ends a step, whose changes were saved or not.
func (r *rows) end(saved bool) {
	for _, e := range r.touched {
		if saved && e.next != nil {
			e.bytes, e.expires = e.next, e.row.Expiry()
		}
		// The bytes of a row in which callers wait may have less than the row has.
		if !saved || e.row.Busy() {
			e.row = nil
		}
		if e.next, e.touched = nil, false; e.row == nil && len(e.bytes) == 0 {
			delete(r.all, e.key)
		}
	}
	clear(r.touched)
	r.touched = r.touched[:0]
}

// rowsAtOnce is how many rows a record has at the most that begins a generation.
const rowsAtOnce = 1000

// write writes the rows that can still matter as records, and returns how many bytes rows have.
func (r *rows) write(now, ahead int64, write func(*record) error) error {
	var live []savedRow
	for e := range maps.Values(r.all) {
		if len(e.bytes) > 0 && e.expires+linger > now {
			live = append(live, e.savedRow)
		}
	}
	for some := range slices.Chunk(live, rowsAtOnce) {
		if err := write(&record{ahead: ahead, rows: some}); err != nil {
			return err
		}
	}
	if len(live) == 0 {
		return write(&record{ahead: ahead})
	}
	return nil
}
