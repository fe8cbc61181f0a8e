package filestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// A generation is one file: a header, and the records of steps. When a file has become long, or the
// process that has locked it stands still, it is ended: a byte in it says so, and its rows are
// written to the file of the next generation. Who has written a record looks at that byte afterwards. Two
// writes to one file follow one another, so either the next generation has the record, or who wrote
// the record finds the byte, and does its step again.
type generation struct {
	f    *os.File
	path string
	header
	end   int64 // the records up to here were taken in
	limit int64 // a longer file is ended
}

const (
	prefix   = "budgets-"
	begunTmp = "budgets-new-" // of a file that is not complete yet
	growMost = 16 << 20       // by how much a file grows before it is ended
	tombLife = time.Minute    // for how long a file that was ended keeps its name
	maxRead  = 1 << 16        // how much is read at once

	// No store writes a longer file, or one with a higher number.
	fileMost   = 4 << 30
	numberMost = 1 << 62
)

// nameOf returns the name of a generation's file.
func nameOf(generation int64) string { return prefix + strconv.FormatInt(generation, 10) }

// newest returns the last generation in a directory, or 0 if there is none.
func newest(d *folder) (last int64, err error) {
	err = eachGeneration(d, func(g int64, _ os.DirEntry) { last = max(last, g) })
	return last, err
}

// eachGeneration calls do with the files of a directory that are generations.
func eachGeneration(d *folder, do func(g int64, e os.DirEntry)) error {
	return d.each(func(e os.DirEntry) {
		if number, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if g, err := strconv.ParseInt(number, 10, 64); err == nil {
				do(g, e)
			}
		}
	})
}

// openGeneration opens the file of a generation. A file that no store has written is refused before anything is changed in it.
func openGeneration(d *folder, number int64) (*generation, error) {
	f, err := d.open(nameOf(number), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}

	path := d.pathOf(nameOf(number))
	h, err := readHeader(f)
	if err == nil && (h.generation != number || number > numberMost) {
		err = fmt.Errorf("%w: it was renamed", errDamaged)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}

	return &generation{f: f, path: path, header: h, end: headerSize}, nil
}

// isLost reports whether the file is not in its place any more: the files were removed, or a different directory has
// taken the place of this one. What is in its place is only compared, not opened.
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

// read calls take with each whole record that was not taken in before, and moves end behind it. It returns nil at the end of the file, and at
// bytes that are no record.
func (g *generation) read(take func(record) error) error {
	// have bytes at the beginning of buf were read, from end on.
	buf := make([]byte, maxRead)
	for have := 0; ; {
		n, err := g.f.ReadAt(buf[have:], g.end+int64(have))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		have += n
		b := buf[:have]

		// Take in all whole records. The rest of a record is read with the next bytes.
		for {
			r, ok := parseRecord(b, g.end)
			if !ok {
				break
			}
			if err := take(r); err != nil {
				return fmt.Errorf("%s: %w", g.path, err)
			}

			n := recordLength(b)
			b, g.end = b[n:], g.end+n
		}

		if err != nil {
			return nil // that is the end of the file
		}

		// The next record is longer than the buffer.
		if more := recordLength(b); more > int64(len(buf)) {
			larger := make([]byte, more)
			have = copy(larger, b)
			buf = larger
		} else {
			if len(b) == len(buf) {
				return nil // no record
			}
			have = copy(buf, b)
		}
	}
}

// cutTorn takes away a last record that a process has begun and not ended. The file is locked, so that no process is writing a record. A torn record
// has no whole record behind it, and no more bytes than a record can have: otherwise the file is damaged.
func (g *generation) cutTorn(size int64) error {
	if size-g.end > recordHead+recordMost {
		return fmt.Errorf("%s: %w: behind its records, which end at %d, are more bytes than a record has", g.path, errDamaged, g.end)
	}

	rest := make([]byte, size-g.end)
	if _, err := g.f.ReadAt(rest, g.end); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	for i := 1; i < len(rest)-recordHead; i++ {
		if _, ok := parseRecord(rest[i:], g.end+int64(i)); ok {
			return fmt.Errorf("%s: %w: there is no record at %d, and there is one behind it", g.path, errDamaged, g.end)
		}
	}

	return g.f.Truncate(g.end)
}

// write appends a record.
func (g *generation) write(b []byte) error {
	if _, err := g.f.WriteAt(b, g.end); err != nil {
		_ = g.f.Truncate(g.end) // the rest is no record
		return err
	}
	return nil
}

// markEnded ends the generation.
func (g *generation) markEnded() error {
	_, err := g.f.WriteAt([]byte{hasEnded}, endedAt)
	return err
}

// hasEnded reports whether the generation is ended.
func (g *generation) hasEnded() (bool, error) {
	var b [1]byte
	_, err := g.f.ReadAt(b[:], endedAt)
	return b[0] == hasEnded, err
}

// create writes the file of a generation with a header and the records that records writes. It writes nothing if the generation, or a
// later one, has a file.
func create(d *folder, h header, records func(write func(*record) error) error) (err error) {
	// Write under a name of its own, so that nobody sees a part of the file.
	f, name, err := d.create(begunTmp)
	if err != nil {
		return err
	}

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

	// A link fails if the name exists, so a generation is written by one process alone.
	err = d.root.Load().Link(name, nameOf(h.generation))
	if errors.Is(err, os.ErrExist) {
		return nil // a different process was first
	}
	if err != nil {
		return err
	}

	// A later generation shows that this process has stood still for long: the name was free because its file was removed.
	if last, err := newest(d); err != nil {
		return err
	} else if last > h.generation {
		return d.remove(nameOf(h.generation))
	}

	return nil
}

// tidy empties the files of all generations except the last two, and removes them a minute later: until then a process that stood still
// cannot take their names. A generation before the last that has not ended was begun at the same moment as the last one, after somebody
// had removed the files. Tidy ends it, so that all programs use the last one. A file that is no generation stays as it is.
func tidy(d *folder, last int64) {
	_ = eachGeneration(d, func(number int64, e os.DirEntry) {
		i, err := e.Info()
		empty := err == nil && i.Size() <= headerSize // a file that is in use has a record at the least
		old := isOld(e, 0, tombLife)

		// An empty file keeps its name for tombLife.
		if err != nil || number >= last || empty && !old {
			return
		}

		g, err := openGeneration(d, number)
		if err != nil {
			return
		}
		defer g.f.Close()

		if ended, err := g.hasEnded(); !ended && err == nil {
			_ = g.markEnded()
		}

		switch {
		// Other processes may still read the end of the generation before the last.
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
