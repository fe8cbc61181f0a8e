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

// makePipe makes a pipe with a name and opens it to read from it. The pipe is opened for writing, too: without a writer a Read would return at once.
// After an error there is no such pipe.
func (p pipes) makePipe(name string) (pipe *os.File, err error) {
	// Mkfifo takes a path, because not all systems can make a pipe below an open directory. It does not follow a link with the name of the pipe.
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

	// If a different user has put a pipe in the place of this one, leave its owner and its rights alone.
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

// polled returns a second file for the pipe of f. A Read of the second file ends when that file is closed. On macOS a Read of a file that package os has
// opened itself does not end then. The caller closes both.
func polled(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}

	var second int
	var failed error
	err = raw.Control(func(first uintptr) {
		// With the lock no program is started before CloseOnExec: it would inherit the descriptor.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		second, failed = syscall.Dup(int(first))
		if failed == nil {
			syscall.CloseOnExec(second)
		}
	})
	if err = errors.Join(err, os.NewSyscallError("dup", failed)); err != nil {
		return nil, err
	}

	return os.NewFile(uintptr(second), f.Name()), nil
}

// hear reads from a pipe until the pipe is closed, and calls wake after each Read, which may take the bytes of several writers.
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

// isDead implements [bells]. Nobody reads from the pipe of a dead process, so it cannot be opened for writing: the error is ENXIO. A process that was
// stopped still has its pipe open. Of a node without a pipe isDead knows nothing, and returns false.
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

	// pipe.Write would wait for room in a full pipe, which needs no further byte: its reader is woken in any case.
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), []byte{1}) })
	}
}

// ringAll implements [bells].
func (p pipes) ringAll(except int64) {
	// An error does no harm: nodes that are not woken look once a second.
	_ = p.each(func(e os.DirEntry) {
		if node, ok := nodeOf(e.Name()); ok && node != except {
			p.ring(node)
		}
	})
}

// nodeOf returns the node whose pipe has a name, and false if it is not the name of a node's pipe.
func nodeOf(name string) (node int64, ok bool) {
	id, ok := strings.CutPrefix(name, pipePrefix)
	if !ok {
		return 0, false
	}
	node, err := strconv.ParseInt(id, 16, 64)
	return node, err == nil
}

// deadLife is for how long at the least a pipe without a reader stays: a process may have begun it just now.
const deadLife = time.Minute

// tidy removes the pipes of dead nodes, and the pipes that a process has begun and not finished within deadLife. The pipe of a dead node stays while
// isLeased is true for the node, because by the pipe others find out that the node is dead.
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
