//go:build linux || darwin

package rendezvous

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// farewell is the message of a keeper to its worker at the end. A keeper that is killed sends nothing.
const farewell = "end\n"

// A Duty is the task of a worker.
type Duty struct {
	// Listener is the listening socket.
	Listener net.Listener

	// Ready must be called once, when nothing can fail any more before connections are accepted. Until then an error
	// reaches the member that started the keeper.
	Ready func()

	// End yields one value when the worker must end: true if no member is left, and false if a second worker accepts
	// connections. Then the first worker ends after its last request.
	End <-chan bool
}

// Work serves a directory as its worker. An error of serve before it is ready reaches the member that started the
// keeper. successor is the command of a process that calls [Keep] with again.
func Work(successor Command, serve func(Duty) error) error {
	readyPipe, err := inherited(readyFile)
	if err != nil {
		return err
	}

	lock, err := inherited(lockFile)
	if err != nil {
		return err
	}

	file, err := inherited(listenerFile)
	if err != nil {
		return err
	}

	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}

	end := make(chan bool, 1)
	ready := func() {
		readyPipe.Close()
		go func() { end <- outlive(successor, lock, file) }()
	}

	if err := serve(Duty{listener, ready, end}); err != nil {
		_, _ = io.WriteString(readyPipe, err.Error()) // fails once the worker was ready
		return err
	}

	return nil
}

// outlive blocks until the worker must end: until its keeper says farewell, or is gone. If the keeper is gone, outlive starts a
// successor, which starts a worker of its own, and tries until that succeeds or no member lives. soon reports that no member is
// left, so that the worker need not wait for open connections.
func outlive(successor Command, lock, listener *os.File) (soon bool) {
	// Stdin is a pipe of the keeper, which ends when the keeper does.
	words, _ := io.ReadAll(os.Stdin)
	if strings.HasPrefix(string(words), farewell) {
		return true
	}

	for {
		keeper, err := successor.serve(lock, listener)

		// Without Wait a keeper that ends would stay a zombie.
		if keeper != nil {
			go func() { _ = keeper.Wait() }()
		}

		if err == nil {
			lock.Close() // the next keeper has it
			return false
		}

		// All members may have ended together with the keeper. The error came through a pipe, as text.
		if err.Error() == errNoMember.Error() {
			return true
		}

		fmt.Fprintln(os.Stderr, "throttle: there is no keeper:", err)
		time.Sleep(longPause)
	}
}
