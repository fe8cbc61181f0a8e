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
	"time"
)

// pipes are bells: each node that listens has a named pipe in the directory, and a byte in it says
// that there are news.
type pipes struct{ dir string }

const (
	pipePrefix  = "node-"
	begunSuffix = ".tmp" // of a pipe that nobody reads from yet
)

func (p pipes) path(node int64) string {
	return filepath.Join(p.dir, pipePrefix+strconv.FormatInt(node, 16))
}

// listen implements [bells].
func (p pipes) listen(node int64, wake func()) (stop func(), err error) {
	path := p.path(node)
	begun := path + begunSuffix // nobody takes a pipe without a reader for one of a node that died
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
	e := &ear{fd: fd}
	go e.hear(wake)
	return func() {
		_ = os.Remove(path) // first: a pipe without a reader is that of a dead node
		e.stop()
	}, nil
}

// An ear reads from the pipe of its node.
type ear struct {
	fd      int
	stopped atomic.Bool
}

// hear calls wake for what is written into the pipe, until stop is called, and closes the pipe.
func (e *ear) hear(wake func()) {
	defer syscall.Close(e.fd)
	var b [64]byte
	for !e.stopped.Load() {
		if n, err := syscall.Read(e.fd, b[:]); n > 0 && !e.stopped.Load() {
			wake()
		} else if err != nil && err != syscall.EINTR {
			return
		}
	}
}

// stop ends hear, which stands in a call. The pipe may not be in its place any more, so it is not opened there.
func (e *ear) stop() {
	own, err := syscall.Dup(e.fd) // hear closes the other one as soon as it may
	e.stopped.Store(true)
	if err == nil {
		_, _ = syscall.Write(own, []byte{1})
		_ = syscall.Close(own)
	}
}

// open opens the pipe of a node, to write to it.
func (p pipes) open(node int64) (fd int, err error) {
	return syscall.Open(p.path(node), syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
}

// isDead implements [bells]: nobody reads from the pipe of a process that has died. A stopped process
// has its pipe open.
func (p pipes) isDead(node int64) bool {
	fd, err := p.open(node)
	if err == nil {
		_ = syscall.Close(fd)
	}
	return errors.Is(err, syscall.ENXIO)
}

// ring implements [bells].
func (p pipes) ring(node int64) {
	if fd, err := p.open(node); err == nil {
		_, _ = syscall.Write(fd, []byte{1}) // a full pipe says the same
		_ = syscall.Close(fd)
	}
}

// ringAll implements [bells].
func (p pipes) ringAll(but int64) {
	p.each(func(node int64) {
		if node != but {
			p.ring(node)
		}
	})
}

// each calls do with all nodes that have a pipe.
func (p pipes) each(do func(node int64)) {
	all, err := os.ReadDir(p.dir)
	if err != nil {
		return // those that are not told look once a second
	}
	for _, e := range all {
		if id, ok := strings.CutPrefix(e.Name(), pipePrefix); ok {
			if node, err := strconv.ParseInt(id, 16, 64); err == nil {
				do(node)
			}
		}
	}
}

// deadLife is for how long the pipe of a dead node stays, so that all nodes find out: as long as any
// lease.
const deadLife = time.Minute

// tidy removes the pipes of nodes that died some time ago, and those that were begun then.
func (p pipes) tidy() {
	begun, _ := filepath.Glob(filepath.Join(p.dir, pipePrefix+"*"+begunSuffix)) // the pattern is good
	for _, path := range begun {
		if i, err := os.Stat(path); err == nil && time.Since(i.ModTime()) > deadLife {
			_ = os.Remove(path)
		}
	}
	p.each(func(node int64) {
		if i, err := os.Stat(p.path(node)); err == nil && time.Since(i.ModTime()) > deadLife && p.isDead(node) {
			_ = os.Remove(p.path(node))
		}
	})
}
