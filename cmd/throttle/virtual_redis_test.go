package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A virtualRedis has a real server run scripts at the virtual time of a bubble of
// testing/synctest. Who waits for the real server waits for the network, so no virtual time
// passes meanwhile, and none on the way to it.
type virtualRedis struct {
	mu      sync.Mutex
	real    net.Conn
	in      *bufio.Reader
	hearers map[string][]*hearer // by channel
}

// newVirtualRedis connects to a server, outside of any bubble.
func newVirtualRedis(t *testing.T, address string) *virtualRedis {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	v := &virtualRedis{real: conn, in: bufio.NewReader(conn), hearers: make(map[string][]*hearer)}
	_, err = v.ask("HELLO", "3")
	require.NoError(t, err)
	_, err = v.ask("PSUBSCRIBE", "*")
	require.NoError(t, err)
	return v
}

// client returns a program's client, for use in a bubble.
func (v *virtualRedis) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "virtual:6379", DialerRetries: 1, PoolSize: 20,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go v.serve(theirs)
			return ours, nil
		},
	})
}

// serve answers one connection's commands.
func (v *virtualRedis) serve(conn net.Conn) {
	out := make(chan []byte, 1024) // a message must not wait for who reads it
	defer close(out)
	hear := &hearer{out: out}
	go func() {
		for value := range out {
			if _, err := conn.Write(value); err != nil {
				conn.Close()
			}
		}
	}()
	defer v.forget(hear)
	for in := bufio.NewReader(conn); ; {
		value, err := redistest.ReadValue(in)
		if err != nil {
			return
		}
		hear.send(v.answer(hear, wordsOf(value)))
	}
}

// A hearer is a connection that messages are sent to.
type hearer struct {
	mu   sync.Mutex
	out  chan<- []byte
	gone bool
}

func (h *hearer) send(value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gone {
		h.out <- value
	}
}

// forget ends what is sent to a connection.
func (v *virtualRedis) forget(h *hearer) {
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	for channel, all := range v.hearers {
		for i, other := range all {
			if other == h {
				v.hearers[channel] = append(all[:i:i], all[i+1:]...)
				break
			}
		}
	}
}

// answer returns the reply to a command. The time of a script is behind its keys: programs leave
// it empty, so that the server takes its own.
func (v *virtualRedis) answer(h *hearer, words []string) []byte {
	switch strings.ToLower(words[0]) {
	case "hello":
		return []byte("%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n")
	case "ping":
		return []byte("+PONG\r\n")
	case "subscribe":
		v.mu.Lock()
		defer v.mu.Unlock()
		var reply []byte
		for i, channel := range words[1:] {
			v.hearers[channel] = append(v.hearers[channel], h)
			reply = fmt.Appendf(reply, ">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, i+1)
		}
		return reply
	case "evalsha", "eval":
		keys, err := strconv.Atoi(words[2])
		if err == nil && len(words) > 3+keys && words[3+keys] == "" {
			words[3+keys] = strconv.FormatInt(time.Now().UnixMicro(), 10)
			if reply, err := v.ask(words...); err == nil {
				return reply
			}
		}
	}
	return fmt.Appendf(nil, "-ERR %s is not for a virtual server\r\n", words[0])
}

// ask has the real server run a command, and delivers what the command published: all of that has
// come when a PING behind the command is answered.
func (v *virtualRedis) ask(words ...string) (reply []byte, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := v.real.Write(append(commandOf(words), commandOf([]string{"PING"})...)); err != nil {
		return nil, err
	}
	for {
		value, err := redistest.ReadValue(v.in)
		switch {
		case err != nil:
			return nil, err
		case string(value) == "+PONG\r\n":
			return reply, nil
		case value[0] == '>':
			if parts := wordsOf(value); len(parts) == 4 && parts[0] == "pmessage" {
				for _, h := range v.hearers[parts[2]] {
					h.send(fmt.Appendf(nil, ">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(parts[2]), parts[2], len(parts[3]), parts[3]))
				}
			}
		default:
			reply = value
		}
	}
}

// commandOf and wordsOf write and read a list of texts.
func commandOf(words []string) []byte {
	text := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(w), w)
	}
	return text
}

func wordsOf(value []byte) (words []string) {
	_, rest, _ := bytes.Cut(value, []byte("\r\n"))
	for len(rest) > 0 && rest[0] == '$' {
		head, tail, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size < 0 || len(tail) < size+2 {
			return nil
		}
		words, rest = append(words, string(tail[:size])), tail[size+2:]
	}
	return words
}

// TestPlanIsTrue: a fleet of three nodes takes as long for a job as plan says, to the microsecond: plan counts
// in microseconds, and nodes sleep until a nanosecond. Transports, stores, client and scripts are those of production, on a real Redis that is told the
// virtual time, so the machine's load has no part in what is compared.
func TestPlanIsTrue(t *testing.T) {
	server := redistest.Single(t)
	v := newVirtualRedis(t, server.Addr)
	for _, of := range []struct {
		requests int
		policies []throttle.Policy
	}{
		{800, []throttle.Policy{{Name: "window", Match: "/", Limit: throttle.PerSecond(40)}}},
		{500, []throttle.Policy{{Name: "bucket", Match: "/", Limit: throttle.TokenBucket(30, time.Second, 60)}}},
		{300, []throttle.Policy{{Name: "slots", Match: "/", Limit: throttle.Concurrency(3)}}},
		{500, []throttle.Policy{{Name: "both", Match: "/", Limit: throttle.SlidingWindow(100, 5*time.Second)}, {Name: "few", Match: "/", Limit: throttle.Concurrency(4)}}},
	} {
		t.Run(of.policies[0].Name, func(t *testing.T) {
			const latency = 50 * time.Millisecond
			var took, planned time.Duration
			synctest.Test(t, func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", nil)
				require.NoError(t, err)
				job := &simulation.Job{
					Policies: of.policies, Mix: []simulation.Part{{Request: req, Weight: 1}},
					Requests: of.requests, Nodes: 3, Workers: 4, Latency: latency, Begin: time.Now(),
				}
				result, err := job.Run(t.Context())
				require.NoError(t, err)
				took, planned = perform(t, v, job), result.Took
			})
			require.Equal(t, planned, took.Truncate(time.Microsecond))
		})
	}
}

// An upstream answers after a time.
type upstream time.Duration

func (u upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(u))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// perform does a job with as many stores as it has nodes.
func perform(t *testing.T, v *virtualRedis, j *simulation.Job) time.Duration {
	var left atomic.Int64
	left.Store(int64(j.Requests))
	var nodes []*throttle.Transport
	for range j.Nodes {
		client := v.client()
		defer client.Close()
		require.NoError(t, client.Ping(t.Context()).Err())
		nodes = append(nodes, throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: redisstore.New(client, redisstore.Options{}), Policies: j.Policies, Base: upstream(j.Latency)})))
	}
	begin := time.Now()
	var all sync.WaitGroup
	for _, node := range nodes {
		for range j.Workers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					resp, err := node.RoundTrip(j.Mix[0].Request)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
	defer time.Sleep(5 * time.Second) // of virtual time: subscriptions end a while after the last waiter
	return time.Since(begin)
}

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
