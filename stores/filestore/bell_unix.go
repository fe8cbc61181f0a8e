//go:build linux || darwin

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pipes are bells: each node that listens has a named pipe in the directory, and a byte in it says
// that there are news.
type pipes struct{ *folder }

const (
	pipePrefix  = "node-"
	begunSuffix = ".tmp" // of a pipe that nobody reads from yet
)

// pipeOf returns the name of a node's pipe.
func pipeOf(node int64) string { return pipePrefix + strconv.FormatInt(node, 16) }

// listen implements [bells].
func (p pipes) listen(node int64, wake func()) (stop func(), err error) {
	// A pipe without a reader belongs to a dead node, so the pipe gets its name when it has a reader.
	name := pipeOf(node)
	begun := name + begunSuffix
	pipe, err := p.makePipe(begun)
	if err != nil {
		return nil, err
	}

	root := p.root.Load()
	if err := root.Rename(begun, name); err != nil {
		return nil, errors.Join(err, pipe.Close(), root.Remove(begun))
	}

	go hear(pipe, wake)
	return func() {
		// Remove the name first: a pipe without a reader belongs to a dead node.
		_ = root.Remove(name)
		_ = pipe.Close()
	}, nil
}

// makePipe makes a pipe, and opens it as a writer, too, so that it never ends.
func (p pipes) makePipe(name string) (pipe *os.File, err error) {
	// No call makes a pipe below an open directory on all systems. Mkfifo follows no link in the place of the pipe.
	if err := syscall.Mkfifo(p.pathOf(name), 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: p.pathOf(name), Err: err}
	}

	defer func() {
		if err != nil {
			_ = p.remove(name)
		}
	}()

	if p.made != nil {
		p.made(name)
	}

	f, err := p.open(name, os.O_RDWR, fs.ModeNamedPipe)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	// A pipe of a stranger that took the place of this one is not given away.
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !isOwn(i) {
		return nil, p.foreign(name)
	}
	if err := p.share(f); err != nil {
		return nil, err
	}

	return polled(f)
}

// polled returns a second file for a pipe, whose Read ends when the file is closed. On macOS the Read of a file that package os has opened itself
// does not end then.
func polled(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}

	var own int
	var failed error
	err = raw.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		own, failed = syscall.Dup(int(fd))
		if failed == nil {
			syscall.CloseOnExec(own)
		}
	})
	if err = errors.Join(err, os.NewSyscallError("dup", failed)); err != nil {
		return nil, err
	}

	return os.NewFile(uintptr(own), f.Name()), nil
}

// hear calls wake for each byte that is written into a pipe, until the pipe is closed.
func hear(pipe *os.File, wake func()) {
	var b [64]byte
	for {
		if _, err := pipe.Read(b[:]); err != nil {
			return
		}
		wake()
	}
}

// openPipe opens the pipe of a node, to write to it.
func (p pipes) openPipe(node int64) (*os.File, error) {
	return p.open(pipeOf(node), os.O_WRONLY, fs.ModeNamedPipe)
}

// isDead implements [bells]: nobody reads from the pipe of a process that has died. A stopped process
// has its pipe open.
func (p pipes) isDead(node int64) bool {
	pipe, err := p.openPipe(node)
	if err == nil {
		_ = pipe.Close()
	}
	return errors.Is(err, syscall.ENXIO)
}

// ring implements [bells].
func (p pipes) ring(node int64) {
	pipe, err := p.openPipe(node)
	if err != nil {
		return
	}
	defer pipe.Close()

	// Write would wait for room. A full pipe needs no further byte.
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), []byte{1}) })
	}
}

// ringAll implements [bells].
func (p pipes) ringAll(but int64) {
	// An error does no harm: nodes that are not woken look once a second.
	_ = p.each(func(e os.DirEntry) {
		if node, ok := nodeOf(e.Name()); ok && node != but {
			p.ring(node)
		}
	})
}

// nodeOf returns the node that a pipe with a name belongs to, and false if there is none.
func nodeOf(name string) (node int64, ok bool) {
	id, ok := strings.CutPrefix(name, pipePrefix)
	if !ok {
		return 0, false
	}
	node, err := strconv.ParseInt(id, 16, 64)
	return node, err == nil
}

// deadLife is for how long a pipe stays that nobody reads from, at the least: it may have been begun just now.
const deadLife = time.Minute

// tidy removes the pipes of nodes that have died, and pipes that were begun some time ago. The pipe of a node stays as long as isLeased says that a row names the node:
// by the pipe others find out that the node is dead, and the pipe may be much older than that.
func (p pipes) tidy(isLeased func(node int64) bool) {
	_ = p.each(func(e os.DirEntry) {
		if !isOld(e, fs.ModeNamedPipe, deadLife) {
			return
		}

		node, isPipe := nodeOf(e.Name())
		begun := strings.HasPrefix(e.Name(), pipePrefix) && strings.HasSuffix(e.Name(), begunSuffix)
		if begun || isPipe && p.isDead(node) && !isLeased(node) {
			_ = p.remove(e.Name())
		}
	})
}
