package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// A folder is the directory of a store. Several users may write to the directory, and each of them may put links, files and pipes there to
// have a process with more rights change a file elsewhere. So:
//
//   - All names are looked up below an open directory ([os.Root]), and no link is followed.
//   - Owner, group, mode and length are changed by the descriptor of an open file, never by name.
//   - A file that is there already is looked at before it is changed: its kind, and that it has no name elsewhere.
//
// What members of the directory can do is to stop the budgets and to forge them. A folder is safe for concurrent use.
type folder struct {
	path string
	root atomic.Pointer[os.Root]

	made func(name string) // for tests: is called when a file was made, before it gets its owner
}

// openFolder returns the folder of a directory that is there.
func openFolder(path string) (*folder, error) {
	d := &folder{path: path}
	return d, d.reopen()
}

// reopen looks up the directory again: a new one may have taken its place. The former root is closed when nobody uses it any more.
func (d *folder) reopen() error {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}

	d.root.Store(root)
	return nil
}

// pathOf is the path of a file, for messages and for comparing: nothing is opened by the path.
func (d *folder) pathOf(name string) string { return filepath.Join(d.path, name) }

// each calls do with the entries of the directory.
func (d *folder) each(do func(e os.DirEntry)) error {
	dir, err := d.root.Load().Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()

	all, err := dir.ReadDir(-1)
	for _, e := range all {
		do(e)
	}

	return err
}

// open opens a file of a kind, such as [fs.ModeNamedPipe], and refuses a file of a different kind, a link, and a file that has a second name outside of the
// directory: writing to it would damage a stranger's file. It does not wait for anybody, not even for the reader of a pipe.
func (d *folder) open(name string, flag int, kind fs.FileMode) (*os.File, error) {
	root := d.root.Load()
	f, err := root.OpenFile(name, flag|openFlags, 0)
	if err != nil {
		// Whoever looks for a file that has gone looks again at once, and must not do so for a link that leads nowhere.
		if i, e := root.Lstat(name); e == nil && i.Mode().Type() != kind {
			err = d.foreign(name)
		}
		return nil, err
	}

	if err := d.check(f, name, kind); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// check returns an error unless an open file is of a kind, and all of its names are in the directory.
func (d *folder) check(f *os.File, name string, kind fs.FileMode) error {
	const rounds = 10
	for range rounds {
		i, err := f.Stat()
		if err != nil {
			return err
		}

		there, err := d.root.Load().Lstat(name)
		if err != nil {
			return err
		}

		switch {
		case i.Mode().Type() != kind, there.Mode().Type() != kind:
			return d.foreign(name)
		case !os.SameFile(i, there):
			return &fs.PathError{Op: "open", Path: d.pathOf(name), Err: fs.ErrNotExist} // somebody has put a different file in its place
		case links(i) == 1:
			return nil
		}

		// A file that was just made has two names for a moment, both of them here.
		here := uint64(0)
		err = d.each(func(e os.DirEntry) {
			if other, err := e.Info(); err == nil && os.SameFile(i, other) {
				here++
			}
		})
		if err != nil || here >= links(i) {
			return err
		}
	}

	return d.foreign(name)
}

// foreign is the error of a file that no store has made.
func (d *folder) foreign(name string) error {
	return fmt.Errorf("%s: %w: it is a link, has another name elsewhere, or is of another kind", d.pathOf(name), errDamaged)
}

// create makes a file that was not there, with a name that begins with a prefix. Only this process may use the file.
func (d *folder) create(prefix string) (f *os.File, name string, err error) {
	for {
		name = prefix + strconv.FormatUint(rand.Uint64(), 36)
		f, err = d.root.Load().OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}

	if err == nil && d.made != nil {
		d.made(name)
	}

	return f, name, err
}

// share lets a file that this process has made be used by those who may use the directory: the file gets the owner and the group of the
// directory, as far as this process may give it to them, and the rights.
func (d *folder) share(f *os.File) error {
	i, err := d.root.Load().Stat(".")
	if err != nil {
		return err
	}

	giveTo(f, i)
	return f.Chmod(fileMode(i))
}

// fileMode is the mode of files in a directory: the directory's mode, without the right to
// search it.
func fileMode(dir fs.FileInfo) fs.FileMode { return dir.Mode().Perm()&0o666 | 0o600 }

// isOld reports whether an entry of a kind was last written to longer ago than an age.
func isOld(e os.DirEntry, kind fs.FileMode, age time.Duration) bool {
	i, err := e.Info()
	return err == nil && i.Mode().Type() == kind && time.Since(i.ModTime()) > age
}

// remove removes a file of the directory.
func (d *folder) remove(name string) error { return d.root.Load().Remove(name) }
