//go:build linux || darwin

package rendezvous

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// LogName is the file in a directory that has what keepers and workers say on stderr.
const LogName = "log"

// mostLog is the length at which the log begins anew with the next process.
const mostLog = 1 << 20

// A Command is how this program is started as a keeper or a worker of a directory.
type Command struct {
	Dir  string   // of the rendezvous
	Args []string // of the program
	Env  []string // as in [exec.Cmd]

	stdin *os.File // nil means an empty one
}

// Spawn starts this program as a keeper, hands on the files that this process was started with, and returns at once.
// The process of Spawn stands between member and keeper so that the keeper is no child of the member: a member that
// waits for all its children would wait for the keeper.
func Spawn(keeper Command) error {
	lock, err := inherited(lockFile)
	if err != nil {
		return err
	}
	readyPipe, err := inherited(readyFile)
	if err != nil {
		return err
	}
	_, err = keeper.start(lock, readyPipe)
	return err
}

// serve starts the command, and returns when the new process serves, or has failed. It hands on the lock, and the
// listening socket if there is one. With an error the process may still run: the returned command is nil only if it was
// not started.
func (c Command) serve(lock *os.File, listener ...*os.File) (*exec.Cmd, error) {
	pipe, readyPipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer pipe.Close()

	cmd, err := c.start(lock, readyPipe, listener...)
	readyPipe.Close()
	if err != nil {
		return nil, err
	}
	return cmd, await(pipe)
}

// start starts the command in a session of its own, so that no signal of a terminal reaches it. What it says goes to
// the log of the directory.
func (c Command) start(lock, readyPipe *os.File, listener ...*os.File) (*exec.Cmd, error) {
	cmd, err := c.command(append([]*os.File{lock, readyPipe}, listener...)...)
	if err != nil {
		return nil, err
	}
	defer cmd.Stderr.(*os.File).Close() // the new process has its own
	return cmd, startAlone(cmd)
}

// command returns the command of a new process in a session of its own, which inherits the files. Its stderr is appended to
// the log, which is emptied when it has become long. The caller closes cmd.Stderr.
func (c Command) command(files ...*os.File) (*exec.Cmd, error) {
	// On Linux this is the program as it runs, also after an upgrade has replaced its file.
	path := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}

	log, err := os.OpenFile(filepath.Join(c.Dir, LogName), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := log.Stat(); err == nil && info.Size() > mostLog {
		_ = log.Truncate(0)
	}

	cmd := &exec.Cmd{
		Path: path, Args: append([]string{"throttle"}, c.Args...), Env: c.Env, Stderr: log, ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}

	// A nil *os.File in the interface would not be nil.
	if c.stdin != nil {
		cmd.Stdin = c.stdin
	}

	return cmd, nil
}

// startAlone starts a command without the files that this program has inherited from its own starter, except for stdin, stdout
// and stderr if cmd has them: a pipe of a shell would stay open for as long as the command runs.
func startAlone(cmd *exec.Cmd) error {
	var inheritable []int
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}

	for _, name := range names {
		// Files below lockFile are stdin, stdout and stderr, of which the command has its own.
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < lockFile {
			continue
		}

		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.CloseOnExec(fd)
			inheritable = append(inheritable, fd)
		}
	}

	err = cmd.Start()

	// Undo the change: programs that this process executes later inherit these files.
	for _, fd := range inheritable {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}

	return err
}

// kinds are the names and types of the files that a starter hands on.
var kinds = map[int]struct {
	name string
	mode uint32
}{
	lockFile:     {"the lock", unix.S_IFREG},
	readyFile:    {"the pipe", unix.S_IFIFO},
	listenerFile: {"the listening socket", unix.S_IFSOCK},
}

// inherited returns the file with one of the numbers of kinds, which the starter has handed on. It returns an error if there is
// no such file, or if its type is wrong: in a process without a starter the number may belong to a file of the runtime.
func inherited(fd int) (*os.File, error) {
	var info unix.Stat_t
	name := kinds[fd].name
	if err := unix.Fstat(fd, &info); err != nil || uint32(info.Mode)&unix.S_IFMT != kinds[fd].mode {
		return nil, fmt.Errorf("%s is missing: throttle run starts this process", name)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}
