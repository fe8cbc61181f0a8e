// Package crew starts the running program once more for each member of a crew, for what
// only several processes can show. Members and the program exchange values, as JSON
// through the standard streams.
//
// A program that calls [Start] calls [Main] first thing, as a test does in TestMain.
package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// variable is in the environment of a member, and says which.
const variable = "THROTTLE_CREW_MEMBER"

// A Link is one side's end of the streams between a member and the program.
type Link struct {
	in *json.Decoder

	mu  sync.Mutex
	out *json.Encoder
}

// Hear waits for the next value of the peer; io.EOF says that it is gone.
func (l *Link) Hear(v any) error { return l.in.Decode(v) }

// Tell tells the peer a value.
func (l *Link) Tell(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Encode(v)
}

// Alone returns a context that ends when the peer is gone, or tells something: "stop", for example. Hear must not be
// called any more.
func (l *Link) Alone() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		var more json.RawMessage
		if err := l.Hear(&more); err != nil {
			end(fmt.Errorf("crew: the program that started this one is gone: %w", err))
			return
		}
		end(errors.New("crew: the program that started this one has told it to stop"))
	}()
	return ctx
}

// Main turns the program into a member, if [Start] started it as one of this role, and then
// never returns. Work gets the orders first.
func Main(role string, work func(program *Link) error) {
	if os.Getenv(variable) != role {
		return
	}
	if err := work(&Link{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A Member is a process, seen from the program that started it.
type Member struct {
	Link
	Gone <-chan struct{} // closed when the process has ended

	cmd  *exec.Cmd
	in   io.Closer // its end tells the member that it is alone
	errs strings.Builder
}

// Start starts a member with its orders. The member ends when ctx or this program ends.
func Start(ctx context.Context, role string, orders any) (*Member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	m := &Member{cmd: exec.CommandContext(ctx, self)}
	m.cmd.Env = append(os.Environ(), variable+"="+role)
	m.cmd.Stderr = &m.errs

	in, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	// A pipe of the command's own would lose unread output when the process ends.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	defer write.Close()
	m.cmd.Stdout = write
	m.in, m.Link.in, m.Link.out = in, json.NewDecoder(read), json.NewEncoder(in)
	if m.Gone, err = Spawn(m.cmd); err != nil {
		return nil, errors.Join(err, read.Close())
	}

	if err = m.Tell(orders); err != nil {
		m.Kill() // otherwise it would wait for its orders
		return nil, err
	}

	return m, nil
}

// Hear is [Link.Hear]; its error has the member's own last words.
func (m *Member) Hear(v any) error {
	err := m.Link.Hear(v)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		<-m.Gone
		err = fmt.Errorf("crew: a member ended: %v: %s", m.cmd.ProcessState, m.Errors())
	}
	return err
}

// IsGone reports whether the process has ended.
func (m *Member) IsGone() bool {
	select {
	case <-m.Gone:
		return true
	default:
		return false
	}
}

// Errors returns the standard error of a member that is gone.
func (m *Member) Errors() string { return strings.TrimSpace(m.errs.String()) }

// Pause keeps the process from running, as a machine without a free processor does.
func (m *Member) Pause() error { return servers.Pause(m.cmd.Process) }

// Continue lets a paused process run on.
func (m *Member) Continue() error { return servers.Continue(m.cmd.Process) }

// Dismiss tells the member that nothing comes any more, and waits for its end.
func (m *Member) Dismiss() {
	_ = m.in.Close()
	<-m.Gone
}

// Kill ends the member without a word.
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill() // an error says that it is gone already
	<-m.Gone
}

// Members work at the same time.
type Members []*Member

// Muster starts a member for each of the orders and returns when all have told that they are
// ready, with any value. The members end when ctx does. After an error Muster kills them.
func Muster[O any](ctx context.Context, role string, orders []O) (all Members, err error) {
	defer func() {
		if err != nil {
			all.Kill()
		}
	}()

	for _, o := range orders {
		m, err := Start(ctx, role, o)
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}

	// All start at once, and then all are awaited.
	for _, m := range all {
		var ready json.RawMessage
		if err := m.Hear(&ready); err != nil {
			return all, err
		}
	}

	return all, nil
}

// Tell tells all members a value.
func (all Members) Tell(v any) error {
	for _, m := range all {
		if err := m.Tell(v); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the members that are still there.
func (all Members) Kill() {
	for _, m := range all {
		m.Kill()
	}
}

// Spawn starts a process that ends with this program: on Linux, even if this program is
// killed. The channel is closed when the process has ended and was reaped.
//
// A goroutine of Spawn stays on its thread until then. Linux sends the parent-death
// signal when the *thread* that started the process ends, and the Go runtime
// ends threads as it likes: without the lock a server could be killed in the
// middle of its test.
func Spawn(cmd *exec.Cmd) (<-chan struct{}, error) {
	dieWithParent(cmd)
	started, gone := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}

		_ = cmd.Wait() // an error says how the process ended
		close(gone)
	}()

	return gone, <-started
}
