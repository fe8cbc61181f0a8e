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

// A page is the rows whose ids lie from first to last. A range of ids stays the same when rows are
// added or deleted; the page of a number does not.
type page struct{ first, last int }

// A folder keeps the pages of one source that were pulled: each is a file of JSON lines that is
// named after its page.
//
// The invariant: a file with the name of a page holds all rows of that page, and nobody changes
// the file again. So the names say what is done, and there is no journal that could say
// otherwise. write keeps the invariant in three steps:
//
//  1. It writes the rows into a file with another name, which nobody reads.
//  2. It has the rows written to the disk. Without this step a power cut could keep the name and
//     lose the rows.
//  3. It renames the file. For the file system that is one step, so that a process that is killed
//     has done it or has not.
//
// A process that is killed before the third step has done nothing: the page is pulled again. After
// the third step the page is done. Nothing has to be written for each page but the page: a power
// cut that takes a name away makes the page one that is pulled again.
//
// Two processes that pull the same page do no harm: the second one puts the same rows into the
// place of the first one's.
type folder struct {
	dir, source string
	mine        []page          // the pages of this machine
	done        map[string]bool // the names of files that were there at the beginning
}

// openFolder opens the folder for a source whose ids go from 1 to last. Of several machines each
// has its part of the pages: every page after as many as there are parts.
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
	if known < len(f.done) {
		return nil, fmt.Errorf("%s has pages of %s that do not begin or end where pages do now: use another folder", dir, source)
	}
	return f, nil
}

// missing returns the pages of this machine that were not there when the folder was opened.
func (f *folder) missing() (pages []page) {
	for _, p := range f.mine {
		if !f.done[f.name(p)] {
			pages = append(pages, p)
		}
	}
	return pages
}

// name is the name of a page's file. Names sort as ids do.
func (f *folder) name(p page) string {
	return fmt.Sprintf("%s-%010d-%010d.jsonl", f.source, p.first, p.last)
}

// write keeps the rows of a page, each as a line of JSON.
func write[Row any](f *folder, p page, rows []Row) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, row := range rows {
		if err := encoder.Encode(row); err != nil {
			return err
		}
	}
	file, err := os.CreateTemp(f.dir, "."+f.name(p)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(text.Bytes())
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(f.dir, f.name(p)))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // what stays is removed by finish
	}
	return err
}

// finish is called when all pages of this machine are done. It has the names written to the disk,
// and removes what killed processes have left of these pages.
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
		if hidden && f.done[of] {
			if err := os.Remove(filepath.Join(f.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	if runtime.GOOS == "windows" { // a folder cannot be synced there
		return nil
	}
	dir, err := os.Open(f.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
