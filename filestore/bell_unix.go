//go:build linux || darwin

package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// pipes are bells: each node that listens has a named pipe in the directory, and a byte in it says
// that there are news.
type pipes struct{ dir string }

const pipePrefix = "node-"

func (p pipes) path(node int64) string {
	return filepath.Join(p.dir, pipePrefix+strconv.FormatInt(node, 16))
}

// listen implements [bells].
func (p pipes) listen(node int64, wake func()) (stop func(), err error) {
	path := p.path(node)
	begun := path + ".tmp" // nobody takes a pipe without a reader for one of a node that died
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: begun, Err: err}
	}
	fd, err := syscall.Open(begun, syscall.O_RDWR|syscall.O_CLOEXEC, 0) // as a writer too: it never ends
	if err == nil {
		err = matchDir(begun, p.dir)
	}
	if err == nil {
		err = os.Rename(begun, path)
	}
	if err != nil {
		_ = os.Remove(begun)
		return nil, &os.PathError{Op: "open", Path: begun, Err: err}
	}
	var stopped atomic.Bool
	go func() {
		defer syscall.Close(fd)
		var b [64]byte
		for !stopped.Load() {
			if n, err := syscall.Read(fd, b[:]); n > 0 && !stopped.Load() {
				wake()
			} else if err != nil && err != syscall.EINTR {
				return
			}
		}
	}()
	return func() {
		stopped.Store(true)
		p.ring(node) // the reader stands in a call
		_ = os.Remove(path)
	}, nil
}

// ring implements [bells].
func (p pipes) ring(node int64) {
	path := p.path(node)
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENXIO) {
		_ = os.Remove(path) // the node died
	}
	if err == nil {
		_, _ = syscall.Write(fd, []byte{1}) // a full pipe says the same
		_ = syscall.Close(fd)
	}
}

// ringAll implements [bells].
func (p pipes) ringAll(but int64) {
	all, err := os.ReadDir(p.dir)
	if err != nil {
		return // those that are not told look once a second
	}
	for _, e := range all {
		id, ok := strings.CutPrefix(e.Name(), pipePrefix)
		if !ok {
			continue
		}
		if node, err := strconv.ParseInt(id, 16, 64); err == nil && node != but {
			p.ring(node)
		}
	}
}
