package filestore

import (
	"slices"

	"github.com/fleetthrottle/throttle/internal/nodestore"
)

// rows are all rows of a file, as a process knows them.
type rows struct {
	nodestore.Table
	ahead int64 // of the clock, as the last record says
}

func (r *rows) clear() { *r = rows{Table: nodestore.NewTable(nil)} }

// take takes in a record.
func (r *rows) take(rec *record) {
	r.ahead = rec.ahead
	for i := range rec.rows {
		r.Take(&rec.rows[i])
	}
}

// rowsAtOnce is how many rows a record has at the most that begins a generation.
const rowsAtOnce = 1000

// write writes the rows that can still matter as records.
func (r *rows) write(now, ahead int64, write func(*record) error) error {
	live := slices.Collect(r.Live(now))
	for chunk := range slices.Chunk(live, rowsAtOnce) {
		if err := write(&record{ahead: ahead, rows: chunk}); err != nil {
			return err
		}
	}
	if len(live) == 0 {
		return write(&record{ahead: ahead})
	}
	return nil
}
