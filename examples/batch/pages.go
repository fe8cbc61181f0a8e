package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// A page is the rows with ids from first to last. A range of ids stays the same when rows are added or
// deleted, unlike a page number.
type page struct{ first, last int }

// A folder holds the pulled pages of one source. Each page is a file of JSON lines, named after the page.
//
// Invariant: a file with the name of a page holds all rows of that page, and never changes. The names
// therefore record which pages are done, and no journal can contradict them. write maintains the invariant in
// three steps:
//
//  1. It writes the rows into a temporary file.
//  2. It syncs the file to disk. Otherwise a power failure could keep the name and lose the rows.
//  3. It renames the file. A rename is atomic: a process that is killed has renamed the file or has not.
//
// A process that is killed before the third step leaves the page to be pulled again. A page needs no further
// record: if a power failure loses a name, the page is pulled again.
//
// Two processes that pull the same page do no harm: the second replaces the rows of the first by the same
// rows.
type folder struct {
	dir, source string
	mine        []page          // pages of this machine
	done        map[string]bool // files present at the start
}

// openFolder opens the folder of a source with ids from 1 to last. Of several machines each takes every
// parts-th page.
func openFolder(dir, source string, last, size, part, parts int) (*folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	f := &folder{dir: dir, source: source, done: make(map[string]bool)}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), source+"-") {
			f.done[e.Name()] = true
		}
	}

	known := 0
	for first := 1; first <= last; first += size {
		p := page{first, min(first+size-1, last)}
		if (first-1)/size%parts == part {
			f.mine = append(f.mine, p)
		}
		if f.done[f.name(p)] {
			known++
		}
	}

	// Pages of a different size would be pulled twice, or be missing.
	if known < len(f.done) {
		return nil, fmt.Errorf("%s has pages of %s that do not begin or end where pages do now: use another folder", dir, source)
	}

	return f, nil
}

// missing returns the pages of this machine that were missing when the folder was opened.
func (f *folder) missing() (pages []page) {
	for _, p := range f.mine {
		if !f.done[f.name(p)] {
			pages = append(pages, p)
		}
	}
	return pages
}

// name returns the name of a page's file. Names sort like ids.
func (f *folder) name(p page) string {
	return fmt.Sprintf("%s-%010d-%010d.jsonl", f.source, p.first, p.last)
}

// write stores the rows of a page, one line of JSON per row.
func write[Row any](f *folder, p page, rows []Row) error {
	// Encode first, so that a row that cannot be encoded leaves no file.
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, row := range rows {
		if err := encoder.Encode(row); err != nil {
			return err
		}
	}

	// Write to a temporary file: a page with its final name is complete, even after a crash.
	file, err := os.CreateTemp(f.dir, "."+f.name(p)+".*")
	if err != nil {
		return err
	}

	_, err = file.Write(text.Bytes())
	// Sync before the rename, or a crash could leave an empty page.
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(f.dir, f.name(p)))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // finish removes what stays
	}

	return err
}

// finish runs when all pages of this machine are done. It syncs the names to disk, and removes temporary
// files that killed processes have left.
func (f *folder) finish() error {
	for _, p := range f.mine {
		f.done[f.name(p)] = true
	}

	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}

	for _, e := range entries {
		of, hidden := strings.CutPrefix(strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())), ".")
		// Other processes may be writing pages that are not done.
		if hidden && f.done[of] {
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}

	// Windows cannot sync a folder.
	if runtime.GOOS == "windows" {
		return nil
	}

	dir, err := os.Open(f.dir)
	if err != nil {
		return err
	}

	return errors.Join(dir.Sync(), dir.Close())
}
