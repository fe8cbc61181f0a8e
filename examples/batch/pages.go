package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// workers pull the pages of one source. More do no harm, because they wait.
const workers = 16

// A page is the rows with ids from first to last. A range of ids stays the same when rows are added or
// deleted, unlike a page number.
type page struct{ first, last int }

// A folder holds the pulled pages of one source. Each page is a file of JSON lines, named after the page.
//
// Invariant: a file with the name of a page holds all rows of that page, and never changes. The names
// therefore record which pages are done, and no journal can contradict them. write maintains the invariant: it
// writes a temporary file, syncs it to disk, and renames it, which is atomic.
//
// A process that is killed before the rename leaves the page to be pulled again. Two processes that pull the
// same page do no harm: the second replaces the rows of the first by the same rows.
type folder struct {
	dir, source string
	pages       int          // of this machine
	missing     []page       // pages of this machine that were missing when the folder was opened
	pulled      atomic.Int64 // pages since then
}

// openFolder opens the folder of a source with ids from 1 to last, and makes it if it is missing. A page has size ids. Of several machines
// each takes every parts-th page: the first page of this one is number part, counted from 0. It is an error if the folder has pages of a
// different size.
func openFolder(dir, source string, last, size, part, parts int) (*folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}

	f := &folder{dir: dir, source: source}
	names, err := filepath.Glob(filepath.Join(dir, source+"-*.jsonl"))
	if err != nil {
		return nil, err
	}

	known := 0 // the pages of all machines that are done
	for first := 1; first <= last; first += size {
		p := page{first, min(first+size-1, last)}
		done := slices.Contains(names, filepath.Join(dir, f.name(p)))
		if done {
			known++
		}
		if number := (first - 1) / size; number%parts == part {
			f.pages++
			if !done {
				f.missing = append(f.missing, p)
			}
		}
	}

	// The rows of a page of a different size would be pulled twice, or be missing.
	if known < len(names) {
		return nil, fmt.Errorf("%s has pages of %s that do not begin or end where pages do now: use another folder", dir, source)
	}
	return f, nil
}

// name returns the name of a page's file. Names sort like ids up to ten digits.
func (f *folder) name(p page) string {
	return fmt.Sprintf("%s-%010d-%010d.jsonl", f.source, p.first, p.last)
}

// progress describes the pages after some seconds of the run: the percentage that is there, pages per second and, once a page was pulled, the time left.
func (f *folder) progress(seconds int) string {
	pulled := int(f.pulled.Load())
	left := len(f.missing) - pulled
	percent := 100 * float64(f.pages-left) / float64(max(f.pages, 1))
	rate := float64(pulled) / float64(seconds)

	text := fmt.Sprintf("%s %.1f%% %.1f/s", f.source, percent, rate)
	if pulled > 0 {
		text += fmt.Sprintf(" %v left", time.Duration(float64(left)/rate)*time.Second)
	}
	return text
}

// pull pulls the missing pages of a source: call returns the rows of one. After the first error no further page begins, and pull returns that
// error. If ctx ends first it returns why.
func pull[Row any](ctx context.Context, f *folder, call func(context.Context, page) ([]Row, error)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	pages := make(chan page)

	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for p := range pages {
				rows, err := call(ctx, p)
				if err == nil {
					err = write(f, p, rows)
				}
				if err != nil {
					stop(fmt.Errorf("page %s: %w", f.name(p), err))
					return
				}
				f.pulled.Add(1)
			}
		})
	}

	// Hand out the pages. Workers that have met an error take no more: ctx has ended then, and the rest is left to the next run.
	for _, p := range f.missing {
		select {
		case pages <- p:
		case <-ctx.Done():
		}
	}
	close(pages)
	working.Wait()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.removeTemporary()
}

// write stores the rows of a page, one line of JSON per row. After an error there is no page.
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

	// Sync before the rename, or a crash could leave an empty page.
	_, err = file.Write(text.Bytes())
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(f.dir, f.name(p)))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // if that fails removeTemporary tries again
	}
	return err
}

// removeTemporary removes the temporary files of pages that are done: killed processes have left them. Files of other pages stay, because other
// machines may be writing them.
func (f *folder) removeTemporary() error {
	temporary, err := filepath.Glob(filepath.Join(f.dir, "."+f.source+"-*"))
	for _, name := range temporary {
		page := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))[1:]
		if _, absent := os.Stat(filepath.Join(f.dir, page)); absent != nil {
			continue
		}

		// A file that is gone has just become its page, or a different machine has removed it.
		if failed := os.Remove(name); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
