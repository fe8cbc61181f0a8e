package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

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
	maxRecord  = 64 << 20 // more is no record
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of a record that begins at a position of the file. It covers the position, so that the bytes of a record count
// in their own place alone. body is the record behind its head.
func checksum(at int64, body []byte) uint32 {
	var place [8]byte
	binary.LittleEndian.PutUint64(place[:], uint64(at))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, body)
}

// append appends the bytes of the record to b. at is the position in the file at which the record begins.
func (r *record) append(b []byte, at int64) []byte {
	// Leave room for the head, which has the length and the checksum of the body.
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

	// Write the head.
	body := b[from+recordHead:]
	binary.LittleEndian.PutUint32(b[from:], uint32(len(body)))
	binary.LittleEndian.PutUint32(b[from+4:], checksum(at, body))
	return b
}

// recordLength returns the length in bytes of the record at the beginning of b, with its head, as the head says. It returns 0 if b is shorter than a
// head, or if no record has that length.
func recordLength(b []byte) int64 {
	if len(b) < recordHead {
		return 0
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n == 0 || n > maxRecord {
		return 0
	}
	return recordHead + n
}

// parseRecord returns the record at the beginning of b. at is the position of b in the file. parseRecord returns false
// if b does not begin with a whole record. The record shares the bytes of b.
func parseRecord(b []byte, at int64) (r record, ok bool) {
	n := recordLength(b)
	if n == 0 || n > int64(len(b)) {
		return record{}, false
	}

	body := b[recordHead:n]
	if binary.LittleEndian.Uint32(b[4:]) != checksum(at, body) {
		return record{}, false
	}

	// The type record lists these parts.
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
	ahead int64 // how far the clock is ahead of the time since boot, in microseconds
}

// clear forgets all rows.
func (r *rows) clear() { *r = rows{Table: node.NewTable(nil)} }

// take applies a record.
func (r *rows) take(rec *record) {
	r.ahead = rec.ahead
	for i := range rec.rows {
		r.Take(&rec.rows[i])
	}
}

// rowsAtOnce is an upper bound on the rows in a record that begins a generation.
const rowsAtOnce = 1000

// write calls put with records of the rows that can still matter at now, a time of the store's clock. Each record says that the clock is
// ahead of the time since boot by ahead.
func (r *rows) write(now, ahead int64, put func(*record) error) error {
	live := slices.Collect(r.Live(now))
	for chunk := range slices.Chunk(live, rowsAtOnce) {
		if err := put(&record{ahead: ahead, rows: chunk}); err != nil {
			return err
		}
	}

	// tidy takes a file without a record for emptied, so each generation has one record at the least.
	if len(live) == 0 {
		return put(&record{ahead: ahead})
	}

	return nil
}

const (
	magic      = "throttle budgets"
	format     = 1    // the form of files, records and rows. Each form has a number of its own.
	headerSize = 4096 // the first record begins here
	maxBoot    = 64
	endedAt    = 2048 // where the byte is that says that the generation has ended
	endedMark  = 'x'
)

// A header is the first bytes of a file. They do not change.
//
//	16 bytes  magic
//	 4 bytes  format
//	 8 bytes  generation
//	 1 byte   length of the boot's identity
//	64 bytes  the boot's identity
//	 4 bytes  checksum of all that
type header struct {
	generation int64
	boot       string
}

const headerUsed = len(magic) + 4 + 8 + 1 + maxBoot

// append appends the bytes of the header to b, and zeros up to headerSize.
func (h *header) append(b []byte) []byte {
	from := len(b)
	b = append(b, make([]byte, headerSize)...)
	p := b[from:]
	copy(p, magic)
	binary.LittleEndian.PutUint32(p[16:], format)
	binary.LittleEndian.PutUint64(p[20:], uint64(h.generation))
	p[28] = byte(copy(p[29:29+maxBoot], h.boot))
	binary.LittleEndian.PutUint32(p[headerUsed:], crc32.Checksum(p[:headerUsed], castagnoli))
	return b
}

// readHeader returns the header of a file. Its errors are those of parseHeader, and of reading.
func readHeader(f *os.File) (header, error) {
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	return parseHeader(head[:n])
}

// parseHeader returns the header that b begins with. The error is a *[FormatError] if the header has a different form, and otherwise errDamaged.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerSize || !bytes.HasPrefix(b, []byte(magic)) {
		return header{}, fmt.Errorf("%w: it does not begin as a file of budgets does", errDamaged)
	}

	// The type header lists the places of its parts. A different form may have its checksum elsewhere, so compare the form first.
	if v := binary.LittleEndian.Uint32(b[16:]); v != format {
		return header{}, &FormatError{Found: int(v)}
	}

	if binary.LittleEndian.Uint32(b[headerUsed:]) != crc32.Checksum(b[:headerUsed], castagnoli) || b[28] > maxBoot {
		return header{}, fmt.Errorf("%w: its first bytes were changed", errDamaged)
	}

	return header{int64(binary.LittleEndian.Uint64(b[20:])), string(b[29 : 29+b[28]])}, nil
}

// errDamaged says that no store has written a file as it is.
var errDamaged = errors.New("the file is damaged")

// A FormatError says that a different version of this package wrote the budgets. Nothing is booked,
// because neither version would know the other version's bookings. Stop all programs that use the
// directory, remove the files in it, and start programs of one version.
type FormatError struct {
	Found int // the form that the file has
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("it was written by another version of the program (form %d, this program knows form %d): "+
		"use one version, or another directory", e.Found, format)
}

// A generation is one file: a header, and the records of steps. When a file has become long, or the
// process that has locked it stands still, a process ends the generation: it writes a byte into the file, the mark, and then
// writes all rows to the file of the next generation. A process that has written a record looks for the mark afterwards. Two
// writes to one file follow one another. So if the record came first, the next generation has it, and if the mark came first, the
// process finds the mark and makes its step again.
type generation struct {
	f    *os.File
	path string
	header
	end   int64 // the position behind the last record that this process has read or written
	limit int64 // a file with more bytes is ended
	spent bool  // f must not be locked any more: see the function lock
}

const (
	prefix   = "budgets-"
	begunTmp = "budgets-new-" // of a file that is not complete yet
	maxGrow  = 16 << 20       // by how much a file grows before it is ended
	tombLife = time.Minute    // for how long a file that was ended keeps its name
	maxRead  = 1 << 16        // how much is read at once

	// No store writes a longer file, or one with a higher number.
	maxFile   = 4 << 30
	maxNumber = 1 << 62
)

// nameOf returns the name of a generation's file.
func nameOf(generation int64) string { return prefix + strconv.FormatInt(generation, 10) }

// newest returns the number of the last generation in a directory, or 0 if there is none.
func newest(d *folder) (last int64, err error) {
	err = eachGeneration(d, func(g int64, _ os.DirEntry) { last = max(last, g) })
	return last, err
}

// eachGeneration calls do with the number and the entry of each file whose name is that of a generation.
func eachGeneration(d *folder, do func(number int64, e os.DirEntry)) error {
	return d.each(func(e os.DirEntry) {
		if digits, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if number, err := strconv.ParseInt(digits, 10, 64); err == nil {
				do(number, e)
			}
		}
	})
}

// openGeneration opens the file of a generation, and reads its header alone. It changes nothing in the file. If there is no file the error is
// [fs.ErrNotExist], and for a file that no store has written as it is errDamaged.
func openGeneration(d *folder, number int64) (*generation, error) {
	f, err := d.open(nameOf(number), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}

	path := d.pathOf(nameOf(number))
	h, err := readHeader(f)
	if err == nil && (h.generation != number || number > maxNumber) {
		err = fmt.Errorf("%w: it was renamed", errDamaged)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}

	return &generation{f: f, path: path, header: h, end: headerSize}, nil
}

// isLost reports whether the file is not in its place any more: the files were removed, or a different directory has
// taken the place of this one. It looks at the whole path, because the open directory may have been moved, too.
func (g *generation) isLost() (bool, error) {
	own, err := g.f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(g.path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(own, there), err
}

// read calls take with each whole record behind g.end, and moves g.end behind the record. It returns nil at the end of the file, and at
// bytes that are no record. An error of take ends it.
func (g *generation) read(take func(record) error) error {
	// buf begins with the bytes of the file from g.end on. have is how many of them were read.
	buf := make([]byte, maxRead)
	for have := 0; ; {
		n, err := g.f.ReadAt(buf[have:], g.end+int64(have))
		atEnd := errors.Is(err, io.EOF)
		if err != nil && !atEnd {
			return err
		}

		have += n
		b := buf[:have]

		// Take all whole records.
		for {
			r, ok := parseRecord(b, g.end)
			if !ok {
				break
			}
			if err := take(r); err != nil {
				return fmt.Errorf("%s: %w", g.path, err)
			}

			length := recordLength(b)
			b, g.end = b[length:], g.end+length
		}

		if atEnd {
			return nil
		}

		// Keep the part of a record that is left: the next bytes come behind it. A record that is longer than the buffer gets a larger one.
		switch length := recordLength(b); {
		case length > int64(len(buf)):
			larger := make([]byte, length)
			have = copy(larger, b)
			buf = larger
		case len(b) == len(buf):
			return nil // the buffer is long enough, and has no record
		default:
			have = copy(buf, b)
		}
	}
}

// cutTorn cuts off a torn record: a last record that a process has begun and not finished. size is the length of the file, which is locked, so that no
// process is writing a record. The bytes behind g.end are no torn record if they are more than a record can have, or have a whole record in them:
// then the error is errDamaged.
func (g *generation) cutTorn(size int64) error {
	if size-g.end > recordHead+maxRecord {
		return fmt.Errorf("%s: %w: behind its records, which end at %d, are more bytes than a record has", g.path, errDamaged, g.end)
	}

	rest := make([]byte, size-g.end)
	if _, err := g.f.ReadAt(rest, g.end); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	// At 0 there is no record: read has stopped there.
	for i := 1; i < len(rest)-recordHead; i++ {
		if _, ok := parseRecord(rest[i:], g.end+int64(i)); ok {
			return fmt.Errorf("%s: %w: there is no record at %d, and there is one behind it", g.path, errDamaged, g.end)
		}
	}

	return g.f.Truncate(g.end)
}

// write writes the bytes of a record at g.end, and does not move g.end. After an error it cuts off what was written.
func (g *generation) write(b []byte) error {
	if _, err := g.f.WriteAt(b, g.end); err != nil {
		_ = g.f.Truncate(g.end) // if that fails, too, the next step cuts off what was written
		return err
	}
	return nil
}

// markEnded writes the mark that ends the generation.
func (g *generation) markEnded() error {
	_, err := g.f.WriteAt([]byte{endedMark}, endedAt)
	return err
}

// hasEnded reports whether the file has the mark that ends the generation.
func (g *generation) hasEnded() (bool, error) {
	var b [1]byte
	_, err := g.f.ReadAt(b[:], endedAt)
	return b[0] == endedMark, err
}

// createGeneration writes the file of a generation: a header, and each record with which the function records calls put. If the generation, or a later
// one, has a file already, createGeneration leaves no new file and returns nil.
func createGeneration(d *folder, h header, records func(put func(*record) error) error) (err error) {
	// Write the file under a temporary name, so that nobody sees a part of it.
	f, name, err := d.create(begunTmp)
	if err != nil {
		return err
	}

	// Remove the temporary name in any case.
	defer func() {
		err = errors.Join(err, f.Close(), d.remove(name))
	}()
	if err := d.share(f); err != nil {
		return err
	}

	at := int64(0)
	write := func(b []byte) error {
		_, err := f.WriteAt(b, at)
		at += int64(len(b))
		return err
	}
	if err := write(h.append(nil)); err != nil {
		return err
	}

	var b []byte
	err = records(func(r *record) error {
		b = r.append(b[:0], at)
		return write(b)
	})
	if err != nil {
		return err
	}

	// Give the file its name by a second link: that fails if the name exists, so only one process writes a generation.
	err = d.root.Load().Link(name, nameOf(h.generation))
	if errors.Is(err, os.ErrExist) {
		return nil // a different process was first
	}
	if err != nil {
		return err
	}

	// If this process has stood still for long, a later generation exists, and the name was free because tidy has removed its file.
	last, err := newest(d)
	if err != nil {
		return err
	}
	if last > h.generation {
		return d.remove(nameOf(h.generation))
	}

	return nil
}

// tidy empties the files of all generations before last except one, the generation last-1, and removes them after tombLife: until then a process that stood
// still cannot take their names. It also removes files that a process has begun, and not finished within tombLife. Every other file stays as it is.
// tidy returns no error, because its next call tries again.
func tidy(d *folder, last int64) {
	_ = eachGeneration(d, func(number int64, e os.DirEntry) {
		i, err := e.Info()
		if err != nil || number >= last {
			return
		}

		// A file that is in use has a record at the least. An emptied file keeps its name for tombLife.
		empty := i.Size() <= headerSize
		if empty && !isOld(e, 0, tombLife) {
			return
		}

		g, err := openGeneration(d, number)
		if err != nil {
			return
		}
		defer g.f.Close()

		// After somebody has removed the files, two processes may begin two generations at once. End the earlier one, so that all use the last.
		if ended, err := g.hasEnded(); !ended && err == nil {
			_ = g.markEnded()
		}

		switch {
		// Other processes may still read the end of this generation.
		case number == last-1:
		case empty:
			_ = d.remove(nameOf(number))
		default:
			_ = g.f.Truncate(headerSize)
		}
	})

	_ = d.each(func(e os.DirEntry) {
		if strings.HasPrefix(e.Name(), begunTmp) && isOld(e, 0, tombLife) {
			_ = d.remove(e.Name()) // of a process that died
		}
	})
}
