//go:build linux || darwin

// Package rendezvous has one server on the loopback serve all programs of a user, and end with the last of them.
//
// # Processes
//
// A *member* is a process that uses the server. Two processes serve a directory:
//
//   - the *keeper* holds the lock of the directory and the listening socket, watches the members, and starts the
//     worker again whenever the worker ends;
//   - the *worker* accepts connections. If the keeper ends, the worker starts a second keeper, which starts a second
//     worker. The first worker then ends after its last request.
//
// # Invariants
//
//   - At most one keeper has a directory. The lock is on an open file (flock) that the keeper hands to the worker, and
//     the worker to the next keeper: the lock is free only when neither lives.
//   - The address stays the same while a member lives. The listening socket is handed on with the lock, so that no
//     other process can listen at the port, and connections that come during a take-over wait in the kernel.
//   - A member needs to do nothing: the keeper watches its process, and writes down who the members are. So a member
//     may be any program.
//   - The keeper ends the worker and itself when the last member has ended.
//
// If keeper and worker are killed at the same moment, or a second keeper before its worker serves, the next member
// starts both, at the port that is written down if the port is free, and for the members that still live.
package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Names of the files in a directory.
const (
	lockName   = "lock"
	socketName = "socket" // of the keeper, for members
	stateName  = "state"  // a state as JSON
)

// Files that a starter hands on, by their numbers in the process that is started.
const (
	lockFile     = 3 // the locked file of the directory
	readyFile    = 4 // a pipe: the process writes why it failed, and closes it when it serves
	listenerFile = 5 // the listening socket, except for a keeper that a member starts
)

// joinTime bounds how long a member waits for the server. A server that fails says so at once, so the bound is for a
// server that hangs. It is long, because a server on a busy machine takes many seconds to start.
const joinTime = time.Minute

// joinPause is the pause before a member looks once more.
const joinPause = 20 * time.Millisecond

// A request is the message of a member to the keeper.
type request struct {
	Process process `json:"process"`
}

// An answer is the message of the keeper to a member. Address is "" if the keeper ends.
type answer struct {
	Address string `json:"address"`
}

// errNobody means that no keeper serves the directory now.
var errNobody = errors.New("rendezvous: no server")

// Join makes this process a member of a directory, and returns the address of the server, such as
// "127.0.0.1:39211". It starts the keeper if there is none: keeper returns the command of a process that calls
// [Spawn]. The membership lasts until the process ends, also if the process executes a different program. Join
// fails if the server cannot start, or does not answer within joinTime.
func Join(dir string, keeper func() Command) (address string, err error) {
	self, err := processOf(os.Getpid())
	if err != nil {
		return "", err
	}

	for end := time.Now().Add(joinTime); time.Now().Before(end); time.Sleep(joinPause) {
		address, err := ask(dir, self)
		if !errors.Is(err, errNobody) {
			return address, err
		}

		lock, err := tryLock(filepath.Join(dir, lockName))
		if err != nil {
			return "", err
		}

		// The process that has the lock is about to serve, or about to end.
		if lock == nil {
			continue
		}

		// The process that is started here ends as soon as the keeper serves: see Spawn.
		starter, err := keeper().serve(lock)
		lock.Close()
		if starter != nil {
			_ = starter.Wait()
		}
		if err != nil {
			return "", err
		}
	}

	return "", fmt.Errorf("the server of %s does not answer: %s says why", dir, filepath.Join(dir, LogName))
}

// ask tells the keeper of a member, and returns the address. The error is errNobody if there is no keeper, or if the keeper
// ends or does not answer within joinTime.
func ask(dir string, self process) (address string, err error) {
	conn, err := net.Dial("unix", filepath.Join(dir, socketName))
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return "", errNobody
	case err != nil:
		return "", err
	}

	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(joinTime))

	// A keeper that ends closes the connection, or answers without an address.
	var a answer
	if json.NewEncoder(conn).Encode(request{self}) != nil || json.NewDecoder(conn).Decode(&a) != nil || a.Address == "" {
		return "", errNobody
	}

	return a.Address, nil
}

// tryLock returns a locked file, or nil if a different process has the lock. The lock lasts until all processes that have
// got the file have closed it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}

	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}

	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}

	return nil, os.NewSyscallError("flock", err)
}

// await reads the pipe of a process until the process serves. It returns an error if the process has failed, or does not serve
// within joinTime, and closes the pipe.
func await(pipe *os.File) error {
	defer pipe.Close()
	_ = pipe.SetReadDeadline(time.Now().Add(joinTime))
	text, err := io.ReadAll(pipe)
	switch {
	case err != nil:
		return fmt.Errorf("the server did not start in %v", joinTime)
	case len(text) > 0:
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
