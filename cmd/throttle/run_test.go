//go:build linux || darwin

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/servers"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/store"
)

// A machine is a user's machine: a runtime directory of its own, and programs that are run in it.
type machine struct {
	*testing.T
	dir string   // of the rendezvous of all programs
	env []string // of the programs
}

// newMachine makes a machine without a program. At the end of the test no process is left.
func newMachine(t *testing.T) *machine {
	// The path of a socket is short: t.TempDir has the name of the test in it.
	base, err := os.MkdirTemp("", "run")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })

	m := &machine{t, filepath.Join(base, "throttle"), append(os.Environ(), "XDG_RUNTIME_DIR="+base, commandVariable+"=1")}
	t.Cleanup(func() {
		m.requireQuiet()
		m.requireNoRace()
	})
	return m
}

// set sets variables, "NAME=value" each, for programs that start later.
func (m *machine) set(variables ...string) { m.env = append(m.env, variables...) }

// command returns a command of throttle, such as run with flags and a program.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.Context(), os.Args[0], append([]string{name}, args...)...)
	cmd.Env = m.env
	return cmd
}

// run runs a program to its end, and returns what it prints, and its exit status as a shell tells it.
func (m *machine) run(args ...string) (out, talk string, status int) {
	m.Helper()
	return m.throttle("run", args...)
}

// throttle runs a command of throttle to its end, as run does.
func (m *machine) throttle(name string, args ...string) (out, talk string, status int) {
	m.Helper()
	cmd := m.command(name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	w := cmd.ProcessState.Sys().(syscall.WaitStatus)
	status = w.ExitStatus()
	if w.Signaled() {
		status = 128 + int(w.Signal())
	}
	return stdout.String(), stderr.String(), status
}

// A resident is a program that lives until it is told to end.
type resident struct {
	*machine
	cmd *exec.Cmd
	in  io.WriteCloser
	url string // of the proxy
}

// stay starts a program that ends with its stdin.
func (m *machine) stay(flags ...string) *resident {
	m.Helper()
	cmd := m.command("run", append(flags, "--", "sh", "-c", "echo $THROTTLE_URL; exec cat")...)
	in, err := cmd.StdinPipe()
	require.NoError(m, err)
	out, err := cmd.StdoutPipe()
	require.NoError(m, err)
	cmd.Stderr = os.Stderr
	require.NoError(m, cmd.Start())
	m.Cleanup(func() { _ = cmd.Process.Kill() })

	var url strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(url.String(), "\n"); {
		_, err := out.Read(one)
		require.NoError(m, err)
		url.Write(one)
	}

	return &resident{m, cmd, in, strings.TrimSpace(url.String())}
}

// end ends the program.
func (r *resident) end() {
	require.NoError(r, r.in.Close())
	_ = r.cmd.Wait()
}

// servers returns the processes that serve the machine in a role, from what ps says.
func (m *machine) servers(roles ...string) (pids []int) {
	out, err := exec.Command("ps", "-eo", "pid=,args=").Output()
	require.NoError(m, err)
	for line := range strings.Lines(string(out)) {
		for _, role := range roles {
			if strings.Contains(line, "throttle run --role="+role+" --dir="+m.dir) {
				pid, err := strconv.Atoi(strings.Fields(line)[0])
				require.NoError(m, err)
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// kill kills the processes of some roles at the same moment, and returns them: all stand still before the first one is
// killed, so that none of them starts another one.
func (m *machine) kill(roles ...string) (pids []int) {
	m.Helper()
	pids = m.servers(roles...)
	require.NotEmpty(m, pids)

	for _, pid := range pids {
		pause(m.T, pid)
	}
	for _, pid := range pids {
		require.NoError(m, syscall.Kill(pid, syscall.SIGKILL))
	}
	return pids
}

// pause has a process stand still.
func pause(t *testing.T, pid int) {
	t.Helper()
	process, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, servers.Pause(process))
}

// killWorker kills the worker, and returns when it is gone: a killed process may take another call before it ends.
func (m *machine) killWorker() {
	m.Helper()
	killed := m.kill(roleWorker)
	require.Eventually(m, func() bool {
		return !slices.ContainsFunc(m.servers(roleWorker), func(pid int) bool { return slices.Contains(killed, pid) })
	}, time.Minute, 10*time.Millisecond)
}

// requireQuiet waits until no process serves the machine.
func (m *machine) requireQuiet() {
	require.Eventually(m, func() bool { return len(m.servers(roleKeeper, roleSuccessor, roleWorker)) == 0 }, time.Minute, 20*time.Millisecond)
}

// requireNoRace requires that the race detector has told nothing of the processes that served the machine.
func (m *machine) requireNoRace() {
	logs, err := filepath.Glob(filepath.Join(m.dir, "*", "log"))
	require.NoError(m, err)
	for _, path := range logs {
		text, err := os.ReadFile(path)
		require.NoError(m, err)
		require.NotContains(m, string(text), "DATA RACE")
	}
}

// statusOf returns the status of a call through the proxy, which is repeated while the proxy is taken over.
func statusOf(t *testing.T, url string) (code int) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		code = resp.StatusCode
		return resp.Body.Close() == nil
	}, time.Minute, 10*time.Millisecond)
	return code
}

// TestRunBecomesTheProgram: the program's input, output and exit status are its own.
func TestRunBecomesTheProgram(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	stay := m.stay()
	defer stay.end()

	bytesOf := make([]byte, 1<<20)
	for i := range bytesOf {
		bytesOf[i] = byte(i * 7)
	}

	cmd := m.command("run", "--", "cat")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = bytes.NewReader(bytesOf), &out
	require.NoError(t, cmd.Run())
	require.True(t, bytes.Equal(bytesOf, out.Bytes()), "each byte, and none besides")

	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("echo no interpreter is named, $1\n"), 0o700))

	for _, c := range []struct {
		args   []string
		out    string
		talk   string
		status int
	}{
		{[]string{"--", "true"}, "", "", 0},
		{[]string{"sh", "-c", "echo out; echo talk >&2; exit 7", "--max-wait", "x"}, "out\n", "talk\n", 7},
		{[]string{"--", "sh", "-c", "kill -TERM $$"}, "", "", 143},
		{[]string{"--", "sh", "-c", "kill -KILL $$"}, "", "", 137},
		{[]string{"--", script, "so"}, "no interpreter is named, so\n", "", 0},
		{[]string{"--", "no-such-program"}, "", "throttle: there is no program no-such-program\n", exitNotFound},
		{[]string{"--", "/no/such/program"}, "", "throttle: there is no program /no/such/program\n", exitNotFound},
		{[]string{"--", "/dev/null"}, "", "throttle: /dev/null cannot be executed: permission denied\n", exitNoProgram},
		{nil, "", "throttle: there is no program to run: throttle run -- COMMAND [ARGUMENT...]\n", exitRun},
		{[]string{"--"}, "", "throttle: there is no program to run: throttle run -- COMMAND [ARGUMENT...]\n", exitRun},
		{[]string{"--no-such-flag", "true"}, "", "throttle: unknown flag: --no-such-flag\n", exitRun},
		{[]string{"--role=x", "true"}, "", "throttle: --role: there is no role \"x\"\n", exitRun},
		{[]string{"--role=worker"}, "", "throttle: the pipe is missing: throttle run starts this process\n", exitRun},
		{
			[]string{"--max-wait=0s", "--limit", "x", "--limit", "api.example.com/=fast", "true"},
			"", "throttle: --max-wait: use more than 0\n--limit x: use HOST/PATH=LIMIT, such as api.example.com/=20/s\n--limit api.example.com/=fast: ", exitRun,
		},
		{[]string{"--file", "../../policyfile/testdata/bad.yaml", "true"}, "", "throttle: ", exitRun},
		{[]string{"--file", "nothing.yaml", "true"}, "", "throttle: policyfile: open ", exitRun},
	} {
		out, talk, status := m.run(c.args...)
		require.Equal(t, c.status, status, "%v: %s", c.args, talk)
		require.Equal(t, c.out, out, "%v", c.args)

		if c.status == exitRun {
			require.True(t, strings.HasPrefix(talk, c.talk), "%v: %s", c.args, talk)
			continue
		}

		require.Equal(t, c.talk, talk, "%v", c.args)
	}
}

// TestRunSignals: a signal to the process is one to the program, once, and a program that a signal does not end goes on.
func TestRunSignals(t *testing.T) {
	t.Parallel()

	// In the background of a shell the test ignores interrupts, and the program would, too. A signal for which the test has a handler has its default effect in
	// the program.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			handled := make(chan os.Signal, 1)
			signal.Notify(handled, s)
			defer signal.Stop(handled)
		}
	}

	m := newMachine(t)
	cmd := m.command("run", "--", "sh", "-c", `trap 'echo hup' HUP; trap 'echo int' INT; trap 'echo term; exit 3' TERM; echo ready; while :; do read line; done`)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	await(t, out, "ready\n")
	for _, c := range []struct {
		signal syscall.Signal
		want   string
	}{{syscall.SIGHUP, "hup\n"}, {syscall.SIGINT, "int\n"}} {
		require.NoError(t, cmd.Process.Signal(c.signal))

		// A signal that comes right before the shell reads does not end the read, and the shell acts on it afterwards.
		_, err := in.Write([]byte("\n"))
		require.NoError(t, err)
		await(t, out, c.want)
	}

	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = in.Write([]byte("\n")) // fails if the shell has ended
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Equal(t, "term\n", string(rest))
	_ = cmd.Wait()
	require.Equal(t, 3, cmd.ProcessState.ExitCode())

	// What the shell ignores stays ignored.
	for _, name := range []string{"INT", "HUP"} {
		script := fmt.Sprintf(`trap '' %s; exec "$0" run -- sh -c 'kill -%[1]s $$; echo lives'`, name)
		shell := exec.Command("sh", "-c", script, os.Args[0])
		shell.Env = m.env
		text, err := shell.CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "lives\n", string(text), name)
	}
}

// TestRunHasNoChild: a program that waits for all its children does not wait for the proxy, and the proxy has no file
// and no key of the program: a pipe that the program leaves ends.
func TestRunHasNoChild(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.set("OPENAI_API_KEY=not-to-be-told")
	stdout, _, status := m.run("--", "sh", "-c", "ps -o comm= --ppid $$; exit $?")
	require.Zero(t, status)
	require.Equal(t, "ps\n", stdout, "the program's own child is the only one")

	read, write, err := os.Pipe()
	require.NoError(t, err)
	cmd := m.command("run", "--", "sh", "-c", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; cat >/dev/null")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	cmd.ExtraFiles = slices.Repeat([]*os.File{write}, 7) // some of the numbers are those of files of the proxy
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	require.NoError(t, read.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = io.ReadAll(read) // ends, although the proxy lives
	require.NoError(t, err)

	if runtime.GOOS == "linux" {
		servers := m.servers(roleKeeper, roleWorker)
		require.Len(t, servers, 2)

		for _, pid := range servers {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			require.NoError(t, err)
			require.Contains(t, string(text), "XDG_RUNTIME_DIR=")
			require.Contains(t, string(text), raceVariable+"=")
			require.NotContains(t, string(text), "not-to-be-told")
		}
	}

	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
}

// TestRunTwentyAtOnce: twenty programs that start together share a proxy and a limit, before an upstream that bans.
func TestRunTwentyAtOnce(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	const limit, per, calls = 10, 2 * time.Second, 30
	var mu sync.Mutex
	var arrived []time.Time
	host := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()

		now := time.Now()
		arrived = append(arrived, now)
		if n := len(arrived) - 1 - limit; n >= 0 && now.Sub(arrived[n]) < per {
			w.WriteHeader(http.StatusForbidden) // banned, from then on
			arrived = append(arrived, arrived...)
		}
	})

	m := newMachine(t)
	file := filepath.Join(t.TempDir(), "policies.yaml")

	// A second of jitter is for a machine that is busy with twenty programs.
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "version: 1\npolicies:\n  - {name: api, match: %q, limit: %d/%v, jitter: 1s}\n", host+"/", limit, per), 0o600))
	var all sync.WaitGroup

	answers := make(chan string, calls)
	for i := range 20 {
		all.Go(func() {
			script := "curl -s -o /dev/null -w '%{http_code} ' $THROTTLE_URL/" + host + "/x"
			if i%2 == 0 {
				script += "; " + script
			}

			out, talk, _ := m.run("--file", file, "--private", "127.0.0.1", "--", "sh", "-c", script+"; echo $THROTTLE_URL")
			require.Empty(t, talk)
			answers <- out
		})
	}

	all.Wait()
	close(answers)

	codes, urls := 0, make(map[string]bool)
	for text := range answers {
		words := strings.Fields(text)
		urls[words[len(words)-1]] = true

		for _, code := range words[:len(words)-1] {
			require.Equal(t, "200", code)
			codes++
		}
	}

	require.Equal(t, calls, codes)
	require.Len(t, arrived, calls, "banned")
	require.NotEmpty(t, urls)
}

// TestRunLockIsHandedOn: after the keeper was killed the worker alone keeps others from the directory and from the address.
func TestRunLockIsHandedOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	program := m.stay()
	locks, err := filepath.Glob(filepath.Join(m.dir, "*", "lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)

	// A worker that stands still starts no successor of the keeper.
	workers := m.servers(roleWorker)
	require.Len(t, workers, 1)
	pause(t, workers[0])
	defer func() { _ = syscall.Kill(workers[0], syscall.SIGCONT) }()
	m.kill(roleKeeper)
	require.Eventually(t, func() bool { return len(m.servers(roleKeeper)) == 0 }, time.Minute, 10*time.Millisecond)

	lock, err := os.Open(locks[0])
	require.NoError(t, err)
	defer lock.Close()
	require.ErrorIs(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	_, err = net.Listen("tcp", strings.TrimPrefix(program.url, "http://"))
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// TestRunTakeOver: while a program lives, the address is served whoever is killed, and the budgets are kept.
func TestRunTakeOver(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	m := newMachine(t)
	flags := []string{"--private", "127.0.0.1", "--limit", host + "/=4/h"}
	first := m.stay(flags...)
	url := first.url + "/" + host + "/x"
	require.Equal(t, http.StatusOK, statusOf(t, url))

	m.killWorker()
	require.Equal(t, http.StatusOK, statusOf(t, url))
	worker := m.servers(roleWorker)
	m.kill(roleKeeper)
	newcomer := m.stay(flags...) // finds no keeper, and waits for the next one
	require.Equal(t, first.url, newcomer.url)
	newcomer.end()
	require.Equal(t, http.StatusOK, statusOf(t, url))

	// A worker that has ended has a successor that serves. The keeper of the successor is killed as well.
	succeeded := func() bool {
		now := m.servers(roleWorker)
		return len(now) == 1 && now[0] != worker[0]
	}
	require.Eventually(t, succeeded, time.Minute, 10*time.Millisecond)
	worker = m.servers(roleWorker)
	m.kill(roleSuccessor)
	require.Equal(t, http.StatusForbidden, statusOf(t, first.url+"/example.com/"))
	require.Eventually(t, succeeded, time.Minute, 10*time.Millisecond)

	// Both at once: the next program starts them, for all.
	m.kill(roleSuccessor, roleWorker)
	second := m.stay(flags...)
	require.Equal(t, first.url, second.url)
	require.Equal(t, http.StatusOK, statusOf(t, url))
	require.Equal(t, http.StatusTooManyRequests, statusOf(t, url), "four of an hour are used up")

	// The second program ends, and the proxy stays for the first, of which only the state told. The first is killed.
	second.end()
	require.Equal(t, http.StatusTooManyRequests, statusOf(t, url))
	require.NotEmpty(t, m.servers(roleKeeper))
	require.NoError(t, first.cmd.Process.Kill())
	_ = first.cmd.Wait()
	m.requireQuiet()

	third := m.stay(flags...)
	require.Equal(t, http.StatusTooManyRequests, statusOf(t, third.url+"/"+host+"/x"), "the budgets outlive the proxy")
	third.end()
}

// TestRunLast: the last program takes the proxy with it, also if the program is killed. What is left is not in the way
// of the next one.
func TestRunLast(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	a, b := m.stay(), m.stay()
	require.Equal(t, a.url, b.url)
	a.end()
	require.Equal(t, http.StatusForbidden, statusOf(t, b.url+"/example.com/"))

	// One with other flags has a proxy of its own.
	c := m.stay("--max-wait", "1m")
	require.NotEqual(t, a.url, c.url)
	c.end()

	require.NoError(t, b.cmd.Process.Kill())
	_ = b.cmd.Wait()
	m.requireQuiet()

	// The kernel takes a dead process from the list before it closes the socket. A dial, because http.Get would first try a connection of before.
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}, time.Minute, 10*time.Millisecond)
}

// TestRunInRun: a program that is itself started by throttle run has the same proxy, or that of its own flags.
func TestRunInRun(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	out, talk, status := m.run("--", "sh", "-c", `echo $OPENAI_BASE_URL; "$0" run -- sh -c 'echo $OPENAI_BASE_URL'; "$0" run --max-wait 1m -- sh -c 'echo $OPENAI_BASE_URL'`, os.Args[0])
	require.Zero(t, status, talk)
	require.Empty(t, talk)
	bases := strings.Fields(out)
	require.Len(t, bases, 3)
	require.Equal(t, bases[0], bases[1])
	require.NotEqual(t, bases[0], bases[2])
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/api\.openai\.com/v1$`, bases[2])
}

// TestRunOff: a program whose environment turns throttle off has a proxy of its own, which holds nothing.
func TestRunOff(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	flags := []string{"--private", "127.0.0.1", "--limit", host + "/=1/h"}
	m := newMachine(t)
	held := m.stay(flags...)
	m.set(store.OffVariable + "=1")
	free := m.stay(flags...)
	require.NotEqual(t, held.url, free.url)
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		require.Equal(t, want, statusOf(t, held.url+"/"+host+"/x"))
		require.Equal(t, http.StatusOK, statusOf(t, free.url+"/"+host+"/x"))
	}
	held.end()
	free.end()
}

// TestTokenIn: a token is made once, also if a worker was killed before it had written the token.
func TestTokenIn(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, tokenName), nil, 0o600))
	token, err := tokenIn(dir)
	require.NoError(t, err)
	require.NotEmpty(t, token)
	again, err := tokenIn(dir)
	require.NoError(t, err)
	require.Equal(t, token, again)
}

// TestPlaced: processes that serve a program find the files that its variables name, whatever their working directories are.
func TestPlaced(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	for v, want := range map[string]string{
		authorityVariable + "=ca.pem":   authorityVariable + "=" + filepath.Join(here, "ca.pem"),
		certificateVariable + "=/etc/c": certificateVariable + "=/etc/c",
		keyVariable + "=":               keyVariable + "=",
		"SSL_CERT_DIR=a:/b":             "SSL_CERT_DIR=" + filepath.Join(here, "a") + ":/b",
		"SSL_CERT_DIR=:/b":              "SSL_CERT_DIR=:/b",
		"OTHER=a":                       "OTHER=a",
	} {
		require.Equal(t, want, placed(v))
	}
	require.Equal(t, []string{"THROTTLE_OFF=1", authorityVariable + "=" + filepath.Join(here, "ca.pem")},
		serving([]string{"THROTTLE_OFF=1", "HOME=x", authorityVariable + "=ca.pem"}))
}

// TestRunWithRedis: with one Redis the programs of two machines share a limit. While Redis is away programs are started
// all the same.
func TestRunWithRedis(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	flags := []string{"--private", "127.0.0.1", "--limit", host + "/=2/h", "--redis", redistest.Single(t).URL()}
	for _, want := range [][]int{{http.StatusOK}, {http.StatusOK, http.StatusTooManyRequests}} {
		stay := newMachine(t).stay(flags...)
		for _, code := range want {
			require.Equal(t, code, statusOf(t, stay.url+"/"+host+"/x"))
		}

		// The address may have a password, which the list of processes must not show.
		list, err := exec.Command("ps", "-eo", "args=").Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(list)) {
			require.False(t, strings.Contains(line, stay.dir) && strings.Contains(line, "redis:"), line)
		}
		stay.end()
	}

	out, talk, code := newMachine(t).run("--redis", "redis://127.0.0.1:1", "--", "echo", "started")
	require.Zero(t, code, talk)
	require.Equal(t, "started\n", out)
}

// TestRunTwoLimitsOfAPattern: a second limit of a pattern is refused with the way out, beside all other mistakes.
func TestRunTwoLimitsOfAPattern(t *testing.T) {
	t.Parallel()
	_, talk, code := newMachine(t).run("--limit", "api.example.com=20/s", "--limit", "api.example.com/=1000/h", "--limit", "x", "--", "true")
	require.Equal(t, exitRun, code)
	require.Contains(t, talk, "--limit api.example.com/=1000/h: api.example.com/ has a limit already; give a pattern several limits as rows of a --file")
	require.Contains(t, talk, "--limit x: use HOST/PATH=LIMIT")
}

// TestRunHandsOver: a call that is on its way when the keeper is killed has its answer, and a call that waits goes on
// waiting.
func TestRunHandsOver(t *testing.T) {
	t.Parallel()
	arrived, pass := make(chan bool), make(chan bool)
	host := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-pass
	})

	m := newMachine(t)
	stay := m.stay("--private", "127.0.0.1", "--limit", host+"/=1/h", "--max-wait", "2h")
	defer stay.end()

	ctx, leave := context.WithCancelCause(t.Context())
	call := func() (answered chan string) {
		answered = make(chan string, 1)
		sent := make(chan bool)
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
		go func() {
			req, err := http.NewRequestWithContext(traced, http.MethodGet, stay.url+"/"+host+"/x", nil)
			if err != nil {
				answered <- err.Error()
				return
			}

			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answered <- errors.Unwrap(err).Error()
				return
			}

			resp.Body.Close()
			answered <- resp.Status
		}()

		<-sent
		return answered
	}

	first := call()
	<-arrived
	second := call()
	require.Equal(t, http.StatusForbidden, statusOf(t, stay.url+"/example.com/")) // so that the second waits by now, most likely
	m.kill(roleKeeper)
	require.Eventually(t, func() bool {
		logs, err := filepath.Glob(filepath.Join(m.dir, "*", "log"))
		require.NoError(t, err)
		text, err := os.ReadFile(logs[0])
		require.NoError(t, err)
		return strings.Contains(string(text), "this one ends after its last call")
	}, time.Minute, 10*time.Millisecond)
	close(pass)
	require.Equal(t, "200 OK", <-first)
	require.Equal(t, http.StatusForbidden, statusOf(t, stay.url+"/example.com/"))
	leave(errors.New("the caller leaves"))
	require.Equal(t, "the caller leaves", <-second)
	require.Eventually(t, func() bool { return len(m.servers(roleWorker)) == 1 }, time.Minute, 10*time.Millisecond)
}

// TestRunHostileDirectory: a directory that others can use, or that is a link, is refused, and what an earlier process
// has left is replaced.
func TestRunHostileDirectory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	refused := func(want string) {
		t.Helper()
		_, talk, status := m.run("--", "true")
		require.Equal(t, exitRun, status)
		require.Contains(t, talk, want)
	}

	base := filepath.Dir(m.dir)
	elsewhere := t.TempDir()
	require.NoError(t, os.Symlink(elsewhere, m.dir))
	refused("is a link: use the directory itself")
	require.NoError(t, os.Remove(m.dir))
	require.NoError(t, os.WriteFile(m.dir, nil, 0o600))
	refused("is no directory")
	require.NoError(t, os.Remove(m.dir))
	require.NoError(t, os.Mkdir(m.dir, 0o750))
	refused("gives rights to other users (-rwxr-x---): chmod 700 takes them away")
	require.NoError(t, os.Chmod(m.dir, 0o700))
	require.NoError(t, os.Chmod(base, 0o777))
	refused("XDG_RUNTIME_DIR: " + base + " gives rights to other users")
	require.NoError(t, os.Chmod(base, 0o700))

	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(m.dir, 65534, 65534))
		refused("belongs to another user")
		require.NoError(t, os.Chown(m.dir, 0, 0))
	}

	m.set("XDG_RUNTIME_DIR=relative")
	refused("XDG_RUNTIME_DIR: relative is no absolute path")
	m.set("XDG_RUNTIME_DIR=" + base)
	entries, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	require.Empty(t, entries)

	// A socket without a listener, and a state that is none.
	m.stay().end()
	m.requireQuiet()
	stale, err := filepath.Glob(filepath.Join(m.dir, "*", "lock"))
	require.NoError(t, err)
	require.Len(t, stale, 1)

	dir := filepath.Dir(stale[0])
	for _, state := range []string{"not a thing", `{"address":"0.0.0.0:0","members":[{"pid":1,"born":"0"}]}`, `{"address":"x","members":null}`} {
		for _, name := range []string{"socket", "state", "page"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(state), 0o600))
		}

		stay := m.stay()
		require.True(t, strings.HasPrefix(stay.url, "http://127.0.0.1:"), stay.url)
		require.Equal(t, http.StatusForbidden, statusOf(t, stay.url+"/example.com/"))

		// A successor has the address from the socket.
		require.NoError(t, os.Remove(filepath.Join(dir, "state")))
		m.kill(roleKeeper)
		require.Eventually(t, func() bool { return len(m.servers(roleSuccessor)) == 1 && len(m.servers(roleWorker)) == 1 }, time.Minute, 10*time.Millisecond)
		next := m.stay()
		require.Equal(t, stay.url, next.url)
		stay.end()
		next.end()
		m.requireQuiet()
	}
}

// TestRunWithoutDirectory: without a runtime directory the programs meet in the user's cache, or without a home in the
// directory for temporary files.
func TestRunWithoutDirectory(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	base := filepath.Dir(m.dir)
	m.set("XDG_RUNTIME_DIR=", "XDG_CACHE_HOME="+base, "HOME="+base)
	stay := m.stay()
	defer stay.end()
	found, err := filepath.Glob(filepath.Join(base, "throttle", "*", "socket"))
	require.NoError(t, err)

	if len(found) == 0 { // macOS
		found, err = filepath.Glob(filepath.Join(base, "Library", "Caches", "throttle", "*", "socket"))
		require.NoError(t, err)
	}

	require.Len(t, found, 1)
}

// TestRunOtherUsers: the connection of another user of the machine is closed before its first byte.
func TestRunOtherUsers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only the superuser of Linux can be another user: internal/rendezvous tests the table of the kernel")
	}

	m := newMachine(t)
	stay := m.stay()
	defer stay.end()
	url := stay.url + "/example.com/"
	require.Equal(t, http.StatusForbidden, statusOf(t, url))

	cmd := exec.Command("curl", "-s", "-S", "-o", "/dev/null", url)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Regexp(t, `curl: \((52|56)\)`, string(text))
	require.Equal(t, http.StatusForbidden, statusOf(t, url))
}

// TestRunKnowsAllPresets: all presets are in force at once, a preset of the file replaces the one of its name, and a
// row of the user the row of its name.
func TestRunKnowsAllPresets(t *testing.T) {
	t.Parallel()
	f, err := policyfile.Parse("file", []byte("version: 1\npresets:\n  - openai: {requests: 7}\npolicies:\n  - {name: github-search, match: api.github.com/search/, limit: 9/m}\n"))
	require.NoError(t, err)
	r := &runner{own: []throttle.Policy{{Name: "api.example.com/", Match: "api.example.com/", Limit: throttle.PerSecond(20)}}}
	limits := make(map[string]string)

	presets := make(map[string]bool)
	for _, p := range r.policies(f) {
		require.NotContains(t, limits, p.Name)
		limits[p.Name] = p.Limit.String()
		presets[presetOf(p)] = true
	}

	require.Equal(t, "7/m", limits["openai-requests"])
	require.Equal(t, "9/m", limits["github-search"])
	require.Equal(t, "20/s", limits["api.example.com/"])

	for _, name := range runPresets() {
		require.True(t, presets[name], name)
	}

	table, err := new(runner).table()
	require.NoError(t, err)

	for _, b := range baseURLs {
		require.True(t, table.Has(b.host), b.name)
	}
}

// TestRunDashboard: the page of the programs is found, without an address of Redis.
func TestRunDashboard(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	m := newMachine(t)
	_, talk, status := m.throttle("dashboard")
	require.Equal(t, exitUsage, status)
	require.Contains(t, talk, "no program of throttle run is there")
	_, talk, _ = m.throttle("dashboard", "--listen", "0.0.0.0:0")
	require.Contains(t, talk, "no program of throttle run is there", "its page has a token of its own")

	stay := m.stay("--private", "127.0.0.1", "--limit", host+"/=100/h")
	defer stay.end()
	_, talk, status = m.throttle("dashboard", "--watch", "--title", "x")
	require.Equal(t, exitUsage, status)
	require.Contains(t, talk, "--title: it is for a fleet with --redis")
	require.Contains(t, talk, "--watch: it is for a fleet with --redis")

	require.Equal(t, http.StatusOK, statusOf(t, stay.url+"/"+host+"/x"))
	link, end := startPage(t, m.command("dashboard", "--listen", "127.0.0.1:0"))
	page, token, found := strings.Cut(link, "#token=")
	require.True(t, found, link)
	code, _ := ask(t, http.MethodGet, page+"events", "", "")
	require.Equal(t, http.StatusUnauthorized, code)
	code, _ = ask(t, http.MethodGet, page+"events", "", token)
	require.Equal(t, http.StatusOK, code)

	req, err := http.NewRequest(http.MethodGet, page+"events", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	await(t, resp.Body, strings.TrimSuffix(host, ":443"))

	// The page outlives its worker.
	m.killWorker()
	require.Equal(t, http.StatusOK, statusOf(t, stay.url+"/"+host+"/x"))
	code, _ = ask(t, http.MethodGet, page+"events", "", token)
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, end())
}

// TestRunRefusalOfAnAPI: what does not start in time is refused in the API's own form.
func TestRunRefusalOfAnAPI(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	m := newMachine(t)
	stay := m.stay("--private", "127.0.0.1", "--limit", host+"/=1/h")
	defer stay.end()
	require.Equal(t, http.StatusOK, statusOf(t, stay.url+"/"+host+"/v1/messages"))

	resp, err := http.Get(stay.url + "/" + host + "/v1/messages")
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Greater(t, seconds, 240)
	var body struct {
		Type  string
		Error struct{ Type, Message string }
	}

	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	require.Equal(t, "error", body.Type)
	require.Equal(t, "rate_limit_error", body.Error.Type)
	require.Contains(t, body.Error.Message, "MaxWait is 4m")
}

// BenchmarkRun measures a call of 900 bytes over https to an upstream on this machine, beside the same call under
// throttle run, in turn, so that other programs disturb both alike; and the start of a program beside its start under
// throttle run while another program has started the proxy. "times" is the median under throttle run by the median
// without it.
func BenchmarkRun(b *testing.B) {
	base, err := os.MkdirTemp("", "run")
	require.NoError(b, err)
	b.Cleanup(func() { os.RemoveAll(base) })
	b.Setenv("XDG_RUNTIME_DIR", base)

	upstream := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, strings.Repeat("answer ", 73))
	}))

	b.Cleanup(upstream.Close)
	authority := filepath.Join(base, "ca.pem")
	require.NoError(b, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw}), 0o600))
	b.Setenv("SSL_CERT_FILE", authority)
	host := upstream.Listener.Addr().String()
	flags := []string{"run", "--private", "127.0.0.1", "--limit", host + "/=1000000/s"}
	b.Setenv(commandVariable, "1")

	// stay starts a program that lives as long as the benchmark.
	stay := func(flags ...string) (url string) {
		cmd := exec.Command(os.Args[0], append(flags, "--", "sh", "-c", "echo $THROTTLE_URL; exec cat")...)
		in, err := cmd.StdinPipe()
		require.NoError(b, err)
		out, err := cmd.StdoutPipe()
		require.NoError(b, err)
		require.NoError(b, cmd.Start())
		url, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(b, err)
		b.Cleanup(func() {
			in.Close()
			_ = cmd.Wait()
		})

		return strings.TrimSpace(url)
	}

	// compare alternates the two ways of an operation.
	compare := func(b *testing.B, unit time.Duration, without, with func()) {
		var took [2][]time.Duration
		for b.Loop() {
			for i, way := range []func(){without, with} {
				begun := time.Now()
				way()
				took[i] = append(took[i], time.Since(begun))
			}
		}

		a, z := stat.Quantile(took[0], 0.5), stat.Quantile(took[1], 0.5)
		b.ReportMetric(float64(a)/float64(unit), "without/op")
		b.ReportMetric(float64(z)/float64(unit), "with/op")
		b.ReportMetric(float64(z)/float64(a), "times")
	}

	b.Run("call_us", func(b *testing.B) {
		client := upstream.Client()
		call := func(url string) {
			resp, err := client.Post(url, "application/json", strings.NewReader(strings.Repeat("question ", 100)))
			require.NoError(b, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			require.Equal(b, http.StatusOK, resp.StatusCode)
		}

		url := stay(flags...)
		compare(b, time.Microsecond, func() { call("https://" + host + "/x") }, func() { call(url + "/" + host + "/x") })
	})

	b.Run("start_ms", func(b *testing.B) {
		start := func(name string, args ...string) { require.NoError(b, exec.Command(name, args...).Run()) }
		stay("run")
		compare(b, time.Millisecond, func() { start("true") }, func() { start(os.Args[0], "run", "--", "true") })
	})
}
