package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// The modes of a copy of the test binary.
const (
	commandVariable = "THROTTLE_TEST_COMMAND" // it is the command itself
	deafVariable    = "THROTTLE_TEST_DEAF"    // it is interrupted and goes on all the same
)

// runDeaf says when it is interrupted for the first time, and then never ends by itself.
func runDeaf() {
	ctx := interruptible()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("interrupted")
	select {}
}

// startCommand runs the command line as a process of its own, whose stdin stays open.
func startCommand(t *testing.T, variable string, args ...string) (cmd *exec.Cmd, in io.WriteCloser) {
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), variable+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	return cmd, in
}

// await reads until a text has come.
func await(t *testing.T, from io.Reader, text string) {
	var all strings.Builder
	for one := make([]byte, 1); !strings.HasSuffix(all.String(), text); {
		_, err := from.Read(one)
		require.NoError(t, err, "%q came, and no %q", all.String(), text)
		all.Write(one)
	}
}

// TestInterruptAtAPrompt: a question that nobody answers ends with an interrupt.
func TestInterruptAtAPrompt(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\npolicies:\n  - {name: api, match: /, limit: 40/s}\n"), 0o600))
	for _, args := range [][]string{{"push", file, at}, {"pause", "api", "--for", "1m", "--file", file, at}} {
		cmd, _ := startCommand(t, commandVariable, args...)
		talk, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		await(t, talk, "[y/N] ")
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		rest, err := io.ReadAll(talk)
		require.NoError(t, err)
		require.Equal(t, "\n", string(rest))
		_ = cmd.Wait()
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), "%v", args)
	}
	require.Contains(t, must(t, "history", "--json", at), `"files": []`)
}

// TestInterruptOnStdin: a command that waits for more of stdin ends with an interrupt.
func TestInterruptOnStdin(t *testing.T) {
	t.Parallel()
	const good = "../../policyfile/testdata/good.yaml"
	for _, args := range [][]string{{"simulate", good, "-"}, {"plan", good, "--mix", "-"}} {
		cmd, in := startCommand(t, commandVariable, args...)
		require.NoError(t, cmd.Start())
		// A pipe holds 64 KiB, so the command has read some of this when all is written.
		_, err := io.WriteString(in, strings.Repeat("# a comment\n", 1<<16))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), "%v", args)
	}
}

// TestInterruptOfAHungRedis: one interrupt ends a command that Redis does not answer.
func TestInterruptOfAHungRedis(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hung.Close()
	for _, args := range [][]string{{"status"}, {"push", "../../policyfile/testdata/good.yaml", "--yes"}, {"pause", "api", "--for", "1m"}, {"top", "--once"}} {
		cmd, _ := startCommand(t, commandVariable, append(args, "--redis", "redis://"+hung.Addr().String()+"?read_timeout=1h", "--timeout", "1h")...)
		require.NoError(t, cmd.Start())
		c, err := hung.Accept()
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 1)) // the command waits for the answer, or will
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), "%v", args)
		c.Close()
	}
}

// TestSecondInterrupt ends a program that does not end with the first one.
func TestSecondInterrupt(t *testing.T) {
	t.Parallel()
	cmd, _ := startCommand(t, deafVariable)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	await(t, out, "ready\n")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	await(t, out, "interrupted\n")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	require.Equal(t, syscall.SIGINT, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// TestClosedPipe: a reader that goes away ends the command by a signal, which a shell calls
// 141, as it ends every other command.
func TestClosedPipe(t *testing.T) {
	t.Parallel()
	cmd, _ := startCommand(t, commandVariable, "schema")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	cmd.Stdout = write
	require.NoError(t, cmd.Start())
	_ = cmd.Wait()
	require.Equal(t, syscall.SIGPIPE, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Empty(t, talk.String())
}

// TestSimulateMaxWait: a wait is a duration, forever or none, and 0 is none of these.
func TestSimulateMaxWait(t *testing.T) {
	for text, want := range map[string]int64{"30s": 30_000, "1ms": 1, "forever": 0, "none": -1} {
		var f maxWaitFlag
		require.NoError(t, f.Set(text))
		require.Equal(t, text, f.String())
		require.Equal(t, want, f.milliseconds())
	}

	for _, text := range []string{"", "0", "0s", "-1", "-1s", "5", "Forever", "never"} {
		require.EqualError(t, new(maxWaitFlag).Set(text), "use more than 0, such as 30s, or forever, or none", text)
	}
}
