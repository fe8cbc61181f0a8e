package filestore

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

// A record is what one step has done: the clock, the rows that it changed, and news. Records
// follow each other in a file. A record counts if all of it is there, which its checksum tells:
// so a step is done as a whole or not at all, wherever a program is killed.
//
//	4 bytes   length of the rest
//	4 bytes   checksum of the position in the file and the rest
//	varint    how far the clock is ahead of the time since boot, in microseconds
//	uvarint   number of rows
//	          of each its key, when it expires (varint), the length of its bytes (uvarint), and its bytes
//	          news, to the end
type record struct {
	ahead int64
	rows  []node.SavedRow
	news  []byte // as bytes. It is empty if there are no news.
}

const (
	recordHead = 8
	recordMost = 64 << 20 // more is no record
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum covers the position, so that bytes of an older record are no record elsewhere.
func checksum(at int64, body []byte) uint32 {
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], uint64(at))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, body)
}

// append appends the record, which begins at a position of the file.
func (r *record) append(b []byte, at int64) []byte {
	from := len(b)
	b = append(b, make([]byte, recordHead)...)
	b = binary.AppendVarint(b, r.ahead)
	b = binary.AppendUvarint(b, uint64(len(r.rows)))
	for i := range r.rows {
		row := &r.rows[i]
		b = append(b, row.Key[:]...)
		b = binary.AppendVarint(b, row.Expires)
		b = binary.AppendUvarint(b, uint64(len(row.Bytes)))
		b = append(b, row.Bytes...)
	}

	b = append(b, r.news...)
	body := b[from+recordHead:]
	binary.LittleEndian.PutUint32(b[from:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[from+4:], checksum(at, body))

	return b
}

// recordLength returns how long the record at the beginning of b is, or 0 if that is not known yet,
// or there is no record.
func recordLength(b []byte) int64 {
	if len(b) < recordHead {
		return 0
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n == 0 || n > recordMost {
		return 0
	}
	return recordHead + n
}

// parseRecord returns the record at the beginning of b, which is at a position of the file; false
// if there is none. Its bytes are bytes of b.
func parseRecord(b []byte, at int64) (r record, ok bool) {
	n := recordLength(b)
	if n == 0 || n > int64(len(b)) {
		return record{}, false
	}

	body := b[recordHead:n]
	if binary.LittleEndian.Uint32(b[4:]) != checksum(at, body) {
		return record{}, false
	}

	u := node.Unpack(body)
	r.ahead = u.Number()

	r.rows = make([]node.SavedRow, u.Count(len(ledger.Key{})))
	for i := range r.rows {
		r.rows[i] = node.SavedRow{Key: u.Key(), Expires: u.Number(), Bytes: u.Bytes(u.Count(1))}
	}

	r.news = u.Rest()
	return r, u.Done()
}

// rows are all rows of a file, as a process knows them.
type rows struct {
	node.Table
	ahead int64 // of the clock, as the last record says
}

// clear forgets all rows.
func (r *rows) clear() { *r = rows{Table: node.NewTable(nil)} }

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

	// A file without a record counts as empty, so each generation has one record at the least.
	if len(live) == 0 {
		return write(&record{ahead: ahead})
	}

	return nil
}
