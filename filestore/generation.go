package filestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A generation is one file: a header, and the records of steps. When a file has become long, or the
// process that has locked it stands still, it is ended: a byte in it says so, and what it holds is
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
	tmp      = "tmp-"
	growMost = 16 << 20    // by how much a file grows before it is ended
	tombLife = time.Minute // for how long a file that was ended keeps its name
	maxRead  = 1 << 16     // how much is read at once
)

func pathOf(dir string, generation int64) string {
	return filepath.Join(dir, prefix+strconv.FormatInt(generation, 10))
}

// newest returns the last generation in a directory; 0 if there is none.
func newest(dir string) (last int64, err error) {
	err = each(dir, func(g int64, _ os.DirEntry) { last = max(last, g) })
	return last, err
}

// each calls do with the files of a directory that are generations.
func each(dir string, do func(g int64, e os.DirEntry)) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if number, ok := strings.CutPrefix(e.Name(), prefix); ok {
			if g, err := strconv.ParseInt(number, 10, 64); err == nil {
				do(g, e)
			}
		}
	}
	return nil
}

// openGeneration opens the file of a generation.
func openGeneration(dir string, number int64) (*generation, error) {
	path := pathOf(dir, number)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	h, err := parseHeader(head[:n])
	if err == nil && h.generation != number {
		err = fmt.Errorf("%w: it was renamed", errDamaged)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &generation{f: f, path: path, header: h, end: headerSize}, nil
}

// isLost reports whether the file is not in its place any more: the files were removed, or another directory has
// taken the place of this one.
func (g *generation) isLost() (bool, error) {
	own, err := g.f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(g.path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return err == nil && !os.SameFile(own, there), err
}

// read takes in the records that were not taken in before, as far as they are there.
func (g *generation) read(take func(record) error) error {
	buf := make([]byte, maxRead)
	for have := 0; ; {
		n, err := g.f.ReadAt(buf[have:], g.end+int64(have))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		have += n
		b := buf[:have]
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

// cutTorn takes away a record behind the others that a process has begun and not ended. The file is
// locked, so that no process is writing one. Bytes with a whole record behind them are no such record.
func (g *generation) cutTorn(size int64) error {
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
		_ = g.f.Truncate(g.end) // what is left is no record
		return err
	}
	return nil
}

// markEnded ends the generation.
func (g *generation) markEnded() error {
	_, err := g.f.WriteAt([]byte{hasEnded}, endedAt)
	return err
}

// endFile ends the generation in a file.
func endFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	g := generation{f: f}
	if ended, err := g.hasEnded(); !ended && err == nil {
		_ = g.markEnded()
	}
	return f.Close()
}

// hasEnded reports whether the generation is ended.
func (g *generation) hasEnded() (bool, error) {
	var b [1]byte
	_, err := g.f.ReadAt(b[:], endedAt)
	return b[0] == hasEnded, err
}

// create writes the file of a generation, unless there is one or a later one.
func create(dir string, h header, records func(write func(*record) error) error) (err error) {
	f, err := os.CreateTemp(dir, tmp+"*")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}()
	if err := matchDir(f.Name(), dir); err != nil {
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
	if err := records(func(r *record) error {
		b = r.append(b[:0], at)
		return write(b)
	}); err != nil {
		return err
	}
	path := pathOf(dir, h.generation)
	if err := os.Link(f.Name(), path); errors.Is(err, os.ErrExist) {
		return nil // another process was first
	} else if err != nil {
		return err
	}
	if last, err := newest(dir); err != nil {
		return err
	} else if last > h.generation {
		return os.Remove(path) // this process has stood still for long
	}
	return nil
}

// tidy empties the files of generations that ended before the one before the last, and later removes
// them. Until then their names cannot be taken by a process that stood still meanwhile. One that has not ended was begun after
// somebody removed the files, at the same moment as the last one: it is ended, so that all programs use the last one.
func tidy(dir string, last int64) {
	_ = each(dir, func(g int64, e os.DirEntry) {
		i, err := e.Info()
		path := pathOf(dir, g)
		if err == nil && g < last && i.Size() >= headerSize {
			_ = endFile(path)
		}
		switch {
		case err != nil || g >= last-1:
		case i.Size() > headerSize:
			_ = os.Truncate(path, headerSize)
		case time.Since(i.ModTime()) > tombLife:
			_ = os.Remove(path)
		}
	})
	all, _ := filepath.Glob(filepath.Join(dir, tmp+"*")) // the pattern is good
	for _, path := range all {
		if i, err := os.Stat(path); err == nil && time.Since(i.ModTime()) > tombLife {
			_ = os.Remove(path) // of a process that died
		}
	}
}
