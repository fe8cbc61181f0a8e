package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// errInUse says that a foreign program listens on the port that a server was to
// have.
var errInUse = errors.New("redistest: address already in use")

// longestWait bounds every wait for a condition. It is only ever used up by
// something that is broken, so it is long enough for a very busy machine.
const longestWait = 30 * time.Second

// A process is one server, and after a restart its successor on the same port.
type process struct {
	bin  string
	dir  string
	port int
	args []string

	cmd  *exec.Cmd
	log  *bytes.Buffer   // the server's output; complete once gone is closed
	gone <-chan struct{} // closed when the process has ended and been reaped
}

// start runs a server on a free port, with the arguments that args returns for
// that port, and waits until it answers.
func start(dir string, args func(port int) []string) (*process, error) {
	bin, err := binary()
	if err != nil {
		return nil, err
	}

	for {
		port, err := servers.FreePort()
		if err != nil {
			return nil, err
		}

		p := &process{bin: bin, dir: dir, port: port, args: args(port)}
		err = p.run()
		if err == nil {
			return p, nil
		}

		// Another program was faster between the look at the port and
		// its use. servers.FreePort never offers the same port twice, so this ends.
		if !errors.Is(err, errInUse) {
			return nil, err
		}
	}
}

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// run starts the process and waits until it answers.
func (p *process) run() error {
	p.log = new(bytes.Buffer)
	p.cmd = exec.Command(p.bin, p.args...)
	p.cmd.Dir = p.dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log

	// A forked child of the server may hold the output open a little longer
	// than the server lives; nobody needs its output.
	p.cmd.WaitDelay = time.Second
	var err error
	if p.gone, err = crew.Spawn(p.cmd); err != nil {
		return fmt.Errorf("redistest: starting %s: %w", p.bin, err)
	}

	if err := p.awaitAnswer(); err != nil {
		p.kill()
		if strings.Contains(p.log.String(), "in use") {
			return errInUse
		}
		return fmt.Errorf("redistest: %s on %s: %w\n%s", p.bin, p.addr(), err, p.log)
	}

	return nil
}

// awaitAnswer waits until the process answers on its port.
func (p *process) awaitAnswer() error {
	return poll(func() (bool, error) {
		select {
		case <-p.gone:
			return false, errors.New("ended before it answered")
		default:
			return p.answers(), nil
		}
	})
}

// answers reports whether this very process answers; a foreign program that
// happens to listen on the port must not be mistaken for it. It does without a
// client because go-redis, once refused, does not dial again for a second.
func (p *process) answers() bool {
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		return false
	}

	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}

	fmt.Fprint(conn, "INFO server\r\n")
	want := fmt.Sprintf("process_id:%d", p.cmd.Process.Pid)

	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if lines.Text() == want {
			return true
		}
	}

	return false
}

// stop asks the process to end and waits until it has. It kills a process that
// does not listen.
func (p *process) stop() {
	// A paused process would receive the request only when it runs again.
	// Errors say that it is gone already.
	_ = p.cmd.Process.Signal(ContinueSignal)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(longestWait):
		p.kill()
	}
}

// kill ends the process, paused or not, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it is gone already
	<-p.gone
}

// binary finds the server's program.
func binary() (string, error) {
	names := []string{"redis-server", "valkey-server"}
	if name := os.Getenv("REDIS_SERVER"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if bin, err := exec.LookPath(name); err == nil {
			return bin, nil
		}
	}
	return "", fmt.Errorf("redistest: no %s on PATH: run `make redis`, or install it "+
		"(apt-get install redis-server, brew install redis, apk add redis), "+
		"or name another program in REDIS_SERVER", strings.Join(names, " or "))
}

// poll asks until the answer is yes or an error, and gives up in the
// end.
func poll(done func() (bool, error)) error {
	deadline := time.Now().Add(longestWait)
	for {
		switch yes, err := done(); {
		case err != nil:
			return err
		case yes:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not so after %v", longestWait)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
