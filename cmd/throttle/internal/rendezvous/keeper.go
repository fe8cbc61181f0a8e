//go:build linux || darwin

package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A process is a process of this machine. The number alone is not unique: the system reuses numbers.
type process struct {
	PID  int    `json:"pid"`
	Born string `json:"born"` // see bornOf
}

// processOf returns the process that has a number now.
func processOf(pid int) (process, error) {
	born, err := bornOf(pid)
	return process{pid, born}, err
}

// lives reports whether the process has not ended.
func (p process) lives() bool {
	now, err := processOf(p.PID)
	switch {
	case err == nil:
		return now == p
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH), p.PID <= 0: // Kill takes such a number for a group
		return false
	}

	// The system could not say, as Linux cannot without a free descriptor. Kill with 0 sends no signal, needs no descriptor,
	// and fails with ESRCH if there is no process of this number.
	return !errors.Is(syscall.Kill(p.PID, 0), syscall.ESRCH)
}

// awaitEnd returns when the process has ended. notice awaits a notice of the kernel: see awaitNotice. If the kernel gives none,
// awaitEnd asks whether the process lives, with a pause of looks.
func (p process) awaitEnd(notice func(process) error) {
	err := notice(p)
	for err != nil && p.lives() {
		time.Sleep(looks)
	}
}

// looks is how often awaitEnd asks whether a process lives, without notices, and how often a keeper accepts members anew
// after an error.
const looks = 100 * time.Millisecond

// A state is the knowledge that a keeper leaves to its successor.
type state struct {
	Address string    `json:"address"`
	Members []process `json:"members"`
}

// A keeper serves a directory: see the package documentation.
type keeper struct {
	dir      string
	worker   Command
	lock     *os.File
	listener *os.File // of the address
	address  string

	mu      sync.Mutex
	members map[process]bool // members that live
	ended   chan struct{}    // closed when the last member has ended
}

// Keep serves the directory of worker until the directory's last member has ended. worker is the command of a process
// that calls [Work]. first is the process number of the first member. This process was started with the lock. again
// says that it was also started with the listening socket of an earlier keeper.
func Keep(worker Command, first int, again bool) error {
	readyPipe, err := inherited(readyFile)
	if err != nil {
		return err
	}

	defer readyPipe.Close()

	k := &keeper{dir: worker.Dir, worker: worker, members: make(map[process]bool), ended: make(chan struct{})}
	err = k.open(again)
	var door net.Listener
	if err == nil {
		door, err = k.begin(first)
	}

	if err != nil {
		_, _ = io.WriteString(readyPipe, err.Error())
		return err
	}

	// Remove the files at the end, so that no new member finds the keeper. A member that comes meanwhile gets an answer
	// without an address, which says that the keeper ends.
	defer os.Remove(filepath.Join(k.dir, stateName))
	defer door.Close()
	go k.welcome(door)

	return k.supervise(readyPipe)
}

// open takes over the lock from the parent process. With again it also takes over the listening socket of the keeper
// before. Otherwise it listens itself, at the address of the keeper before if that is free. It sets lock, listener and address.
func (k *keeper) open(again bool) (err error) {
	if k.lock, err = inherited(lockFile); err != nil {
		return err
	}

	var listener net.Listener
	if again {
		if k.listener, err = inherited(listenerFile); err != nil {
			return err
		}
		listener, err = net.FileListener(k.listener)
	} else {
		listener, err = listenAgain(k.read().Address)
	}

	if err != nil {
		return err
	}

	defer listener.Close() // the file is a second handle of the socket

	k.address = listener.Addr().String()
	if !again {
		k.listener, err = listener.(*net.TCPListener).File()
	}

	return err
}

// listenAgain listens at the address of an earlier keeper, which members may still call if keeper and worker were killed
// together. If there is none, or the port is taken, it listens at a free port of the loopback.
func listenAgain(address string) (net.Listener, error) {
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsLoopback() {
		if listener, err := net.Listen("tcp4", address); err == nil {
			return listener, nil
		}
	}
	return net.Listen("tcp4", "127.0.0.1:0")
}

// errNoMember ends a keeper before it serves.
var errNoMember = errors.New("rendezvous: no member lives")

// begin adds the members of the keeper before, and the first member, if they live. It writes the state, and watches the
// members. It returns the listener for further members, or errNoMember if no member lives.
func (k *keeper) begin(first int) (net.Listener, error) {
	members := k.read().Members
	if p, err := processOf(first); err == nil {
		members = append(members, p)
	}

	for _, p := range members {
		if p.lives() {
			k.members[p] = true
		}
	}

	if len(k.members) == 0 {
		return nil, errNoMember
	}

	// A socket that exists is left over from a dead keeper, because this keeper has the lock.
	path := filepath.Join(k.dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}

	door, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EINVAL) {
		return nil, fmt.Errorf("%s is too long for a socket: set XDG_RUNTIME_DIR to a shorter path", path)
	}
	if err != nil {
		return nil, err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	k.write()
	for p := range k.members {
		go k.watch(p)
	}

	return door, nil
}

// watch removes a member when it ends, and closes ended with the last member.
func (k *keeper) watch(p process) {
	p.awaitEnd(awaitNotice)

	k.mu.Lock()
	defer k.mu.Unlock()

	delete(k.members, p)
	k.write()
	if len(k.members) == 0 {
		close(k.ended)
	}
}

// read returns the state of the keeper before, or a zero state.
func (k *keeper) read() (s state) {
	text, err := os.ReadFile(filepath.Join(k.dir, stateName))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return state{}
	}
	return s
}

// write writes the state for the keeper after this one, and reports a failure on stderr. The mutex is held.
func (k *keeper) write() {
	s := state{Address: k.address}
	for p := range k.members {
		s.Members = append(s.Members, p)
	}

	// The new file replaces the old one at once: a keeper that is killed here leaves a whole state.
	text, err := json.Marshal(s)
	path := filepath.Join(k.dir, stateName)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "throttle: the members cannot be written down:", err)
	}
}

// admit adds and watches a member, unless it is one already. It returns false if the last member has ended already.
func (k *keeper) admit(p process) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if len(k.members) == 0 {
		return false
	}
	if !k.members[p] {
		k.members[p] = true
		k.write()
		go k.watch(p)
	}
	return true
}

// welcome answers members until the door is closed.
func (k *keeper) welcome(door net.Listener) {
	for {
		conn, err := door.Accept()
		switch {
		case err == nil:
			go k.meet(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(looks) // the error may pass: there may be no free descriptor
		}
	}
}

// meet adds a member, and answers with the address, or with no address if the keeper ends. A process that has ended gets no
// answer, nor does a message that cannot be read.
func (k *keeper) meet(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(joinTime))

	var r request
	if json.NewDecoder(io.LimitReader(conn, 1<<10)).Decode(&r) != nil || !r.Process.lives() {
		return
	}

	var a answer
	if k.admit(r.Process) {
		a.Address = k.address
	}

	_ = json.NewEncoder(conn).Encode(a)
}

// Pauses before a worker that has ended is started again. The short pause comes first: most workers that end were killed.
const (
	shortPause = 10 * time.Millisecond
	longPause  = time.Second
)

// supervise runs a worker, and a new one whenever the worker ends, until the last member has ended. It returns an error
// only if the first worker does not start. It writes the error to readyPipe, and closes readyPipe once the first worker
// serves.
func (k *keeper) supervise(readyPipe *os.File) error {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		begun := time.Now()
		end, err := k.start()

		// Whoever started the keeper waits for the first worker alone.
		if readyPipe != nil {
			if err != nil {
				_, _ = io.WriteString(readyPipe, err.Error())
				return err
			}

			readyPipe.Close()
			readyPipe = nil
		}

		if err != nil {
			fmt.Fprintln(os.Stderr, "throttle: the server fails again:", err)
		} else if told := end(); told {
			return nil
		}

		// The last member may have ended while no worker ran, or at the moment at which the worker ended by itself.
		select {
		case <-k.ended:
			return nil
		default:
		}

		// A worker that ran for a while has not failed at its start, so the next one may follow soon.
		if time.Since(begun) > time.Minute {
			pause = shortPause
		}

		time.Sleep(pause)
	}
}

// start starts a worker, and returns once the worker serves. end blocks until the worker has ended, and reports whether
// the keeper told it to end, because the last member has ended.
func (k *keeper) start() (end func() bool, err error) {
	stdin, words, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	defer stdin.Close()

	worker := k.worker
	worker.stdin = stdin

	cmd, err := worker.serve(k.lock, k.listener)
	if err != nil {
		words.Close()
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}

		return nil, err
	}

	return func() bool { return k.await(cmd, words) }, nil
}

// await waits for the end of a worker. Once the last member has ended, it tells the worker to end, and told is true.
func (k *keeper) await(cmd *exec.Cmd, words *os.File) (told bool) {
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()

	select {
	case <-gone:
	case <-k.ended:
		told = true
		_, _ = io.WriteString(words, farewell)
	}

	words.Close()
	<-gone
	return told
}
