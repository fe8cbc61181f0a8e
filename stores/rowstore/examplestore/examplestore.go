// Package examplestore is a [rowstore.Database] in full, to copy from: a directory of JSON files that programs of one
// machine share. Filestore does the same a hundred times as fast. What this one has of others is its form:
// there are no locks, and a transaction is saved by a compare-and-swap, as in etcd, DynamoDB and object stores.
package examplestore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A Directory has a directory for each group, with a file for each transaction. The file with the highest number is the
// state of the group. To save a transaction is to link the file with the next number, which only one program can.
type Directory struct{ path string }

// Open returns the Database of a directory.
func Open(dir string) *Directory { return &Directory{dir} }

// A state is the content of a file.
type state struct {
	ID     string         // unique among files
	Before string         // the ID of the file before
	Rows   map[string]row // by key
}

// A row is a value, and the time from which on the row may be removed.
type row struct {
	Value []byte
	Until time.Time
}

// Transact implements [rowstore.Database]. It reads all rows of the group at once, so it needs no keys.
func (d *Directory) Transact(ctx context.Context, group string, _ []string, do func(rowstore.Tx) error) error {
	dir := filepath.Join(d.path, group)
	for ctx.Err() == nil {
		n, last, err := newest(dir)
		if err != nil {
			return err
		}

		t := &tx{rows: last.Rows, put: map[string]row{}}
		if err := do(t); err != nil || len(t.put) == 0 {
			return err
		}

		next := state{rand.Text(), last.ID, maps.Clone(last.Rows)}

		// Each file leaves out the rows that may be removed, so nothing else has to remove them.
		maps.DeleteFunc(next.Rows, func(_ string, r row) bool { return r.Until.Before(t.now) })
		maps.Copy(next.Rows, t.put)
		if saved, err := swap(dir, n+1, &next); saved || err != nil {
			return err
		}

		// Another program was first: do has to decide again, with the rows that it saved.
	}

	return context.Cause(ctx)
}

// A tx implements [rowstore.Tx] on the rows of a file.
type tx struct {
	rows, put map[string]row // the rows of the file, and those that do has put
	now       time.Time      // zero until Now is called
}

// Now is the clock of the machine, which all its programs have. It is read once, after the file.
func (t *tx) Now() time.Time {
	if t.now.IsZero() {
		t.now = time.Now()
	}
	return t.now
}

// Get implements [rowstore.Tx].
func (t *tx) Get(keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	for i, k := range keys {
		values[i] = t.rows[k].Value
	}
	return values, nil
}

// Put implements [rowstore.Tx].
func (t *tx) Put(key string, value []byte, keep time.Duration) {
	t.put[key] = row{value, t.Now().Add(keep)}
}

// newest returns the last state of a group and its number, or a state without rows and 0 if there is none.
func newest(dir string) (n int, last state, err error) {
	for {
		names, err := filepath.Glob(path(dir, "*"))
		if err != nil {
			return 0, state{}, err
		}

		n = 0
		for _, name := range names {
			number, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".json"))
			n = max(n, number)
		}

		if n == 0 {
			return 0, state{Rows: make(map[string]row)}, nil
		}

		// A file that does not exist any more was removed meanwhile: look again.
		if last, err = read(dir, n); !errors.Is(err, fs.ErrNotExist) {
			return n, last, err
		}
	}
}

// path is the path of the file with number n in dir, or of all files if n is "*".
func path(dir string, n any) string { return filepath.Join(dir, fmt.Sprint(n, ".json")) }

// read reads version n of the group's state.
func read(dir string, n int) (s state, err error) {
	b, err := os.ReadFile(path(dir, n))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// kept is how many files of a group are kept. If more than that are saved after a program's file, and before swap looks for it, the
// program does not know whether its own was saved.
const kept = 300

// swap saves a state under a number. It does not wait for the disk, as a database has to: if the machine loses its power, the last
// transactions may be lost, and their starts do not count any more. It returns false if another program was first. After an error the state may be saved
// or not.
func swap(dir string, n int, s *state) (saved bool, err error) {
	b, err := json.Marshal(s)
	if err = errors.Join(err, os.MkdirAll(dir, 0o700)); err != nil {
		return false, err
	}

	// The file has all of its bytes before it gets its number.
	unnumbered := filepath.Join(dir, s.ID+".tmp")
	defer os.Remove(unnumbered)
	if err = os.WriteFile(unnumbered, b, 0o600); err == nil {
		err = os.Link(unnumbered, path(dir, n))
	}

	if errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}

	_ = os.Remove(path(dir, n-kept)) // it may have been removed before

	// A program that stood still for long finds a number free that was used, and whose file was removed since. Then this file
	// is not the last one, and the next file does not name it.
	last, _, err := newest(dir)
	if last == n || err != nil {
		return err == nil, err
	}

	next, err := read(dir, n+1)
	return next.Before == s.ID, err
}
