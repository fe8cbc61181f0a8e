package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/policyfile/pushed"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// nodeVariable has the address of Redis for a copy of the test binary that is a program.
const nodeVariable = "THROTTLE_TEST_NODE"

// runNode is a program as its README has it: a reporter around its store, policies that are
// pushed, a transport. It sends a request for each line that it reads, "wait" for one that
// waits until the next line comes, and says what became of it.
func runNode() {
	o, err := redis.ParseURL(os.Getenv(nodeVariable))
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(o)
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: os.Getenv("NODE_NAME"), Interval: 50 * time.Millisecond}))
	defer reporter.Close()
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: reporter, Base: answers{}})
	if err != nil {
		panic(err)
	}
	if _, err = pushed.Follow(context.Background(), reporter, policyfile.Options{
		Interval: 20 * time.Millisecond, Grace: time.Second,
		Apply: func(f *policyfile.File) error { return transport.SetPolicies(f.Policies) },
	}); err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for lines.Scan() {
		ctx, stop := context.WithCancel(context.Background())
		if lines.Text() != "wait" {
			ctx = throttle.WithMaxWait(ctx, -1)
		}
		said := make(chan string, 1)
		go func() { said <- request(ctx, transport) }()
		if lines.Text() == "wait" {
			fmt.Println("waits")
			lines.Scan()
			stop()
		}
		fmt.Println(<-said)
		stop()
	}
}

// request sends a request and says what became of it.
func request(ctx context.Context, t http.RoundTripper) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://acme.example.com/admin/orders.json?access_token=secret-81", nil)
	if err != nil {
		panic(err)
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	return "sent"
}

// answers is a base that answers all.
type answers struct{}

// RoundTrip implements [http.RoundTripper].
func (answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
}

// A process is a program of the fleet.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(t *testing.T, name, address string) *process {
	return startBinary(t, nodeVariable+"="+address, "NODE_NAME="+name)
}

// startBinary starts a copy of the test binary, with an environment that says what it is.
func startBinary(t *testing.T, environment ...string) *process {
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.in.Close()
		p.cmd.Wait()
	})
	p.expect("ready")
	return p
}

// say writes a line to the program.
func (p *process) say(line string) {
	_, err := fmt.Fprintln(p.in, line)
	require.NoError(p.t, err)
}

// hear reads a line of the program.
func (p *process) hear() string {
	line, err := p.out.ReadString('\n')
	require.NoError(p.t, err)
	return strings.TrimSuffix(line, "\n")
}

func (p *process) expect(line string) { require.Equal(p.t, line, p.hear()) }

// throttleCommand runs the command line and returns its exit code and what it printed.
func throttleCommand(t *testing.T, args ...string) (int, string) {
	var out bytes.Buffer
	code := run(t.Context(), args, &out, &out)
	require.NotContains(t, out.String(), "secret")
	return code, out.String()
}

// must runs the command line, which must succeed.
func must(t *testing.T, args ...string) string {
	code, out := throttleCommand(t, args...)
	require.Zero(t, code, "%v: %s", args, out)
	return out
}

// allKnow reports whether all programs have reported to the Redis of a flag since the first budget was paused for d.
func allKnow(t *testing.T, at string, d time.Duration) bool {
	var s fleet.Snapshot
	require.NoError(t, json.Unmarshal([]byte(must(t, "status", "--json", at)), &s))
	since := s.Budgets[0].Note.Until.Add(-d).Add(100 * time.Millisecond) // the report before this one has been answered
	return !slices.ContainsFunc(s.Nodes, func(n fleet.Node) bool { return !s.At.Add(-n.Ago.Duration).After(since) })
}

// TestFleet is a day of three programs: a file is pushed to them, a budget is paused with a
// reason that a waiting caller reads, a broken file is refused by the command line and by
// the programs, what loosens waits, a program dies, Redis dies.
func TestFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	at := "--redis=" + server.URL()
	file := func(limit string) string {
		path := filepath.Join(t.TempDir(), "policies.yaml")
		text := "version: 1\npolicies:\n  - {name: shop, match: \"{shop}.example.com/admin/\", key: \"{shop}\", limit: " + limit + "}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	must(t, "push", file("1000/h"), "--yes", "--by", "anna", "--wait", "0", at)
	programs := []*process{startProcess(t, "a", server.URL()), startProcess(t, "b", server.URL()), startProcess(t, "c", server.URL())}
	for _, p := range programs {
		p.say("go")
		p.expect("sent")
	}

	// A lower limit is in force at once, on all three.
	out := must(t, "push", file("3/h"), "--yes", at)
	require.Contains(t, out, "in force on 3 of 3 nodes that follow")
	programs[0].say("go")
	require.Contains(t, programs[0].hear(), `policy "shop" (3/h): would wait`)

	// What loosens waits for its grace.
	out = must(t, "push", file("2000/h"), "--yes", "--loosen", at)
	require.Contains(t, out, `it loosens: policy "shop": its limit goes from 3/h to 2000/h`)
	require.Contains(t, out, "in force on 3 of 3 nodes that follow")
	programs[0].say("go")
	programs[0].expect("sent")

	// Paused: callers that are refused and callers that wait read the reason.
	must(t, "pause", "shop", "--key", "acme", "--for", "1h", "--reason", "the shop moves", "--by", "anna@desk", "--yes", at)
	for _, p := range programs {
		p.say("wait")
		p.expect("waits")
	}
	require.Eventually(t, func() bool {
		return strings.Contains(must(t, "status", at), `3 wait, closed for`)
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, must(t, "status", at), `paused by anna@desk: "the shop moves"`)
	require.Eventually(t, func() bool { return allKnow(t, at, time.Hour) }, time.Minute, 10*time.Millisecond)
	for _, p := range programs {
		p.say("leave")
		require.Regexp(t, `^throttle: the caller gave up after waiting \S+ for policy "shop", paused by anna@desk: "the shop moves": context canceled$`, p.hear())
		p.say("go")
		require.Regexp(t, `^throttle: policy "shop" \(2000/h\): paused by anna@desk: "the shop moves", would wait \S+, but may not wait at all$`, p.hear())
	}
	must(t, "resume", "shop", "--key", "acme", "--yes", at)
	programs[1].say("go")
	programs[1].expect("sent")

	// A broken file is refused by the command line, and one that is written by hand by the
	// programs, which keep theirs.
	code, out := throttleCommand(t, "push", file("3/fortnight"), "--yes", at)
	require.Equal(t, exitFound, code)
	require.Contains(t, out, `"fortnight" is not a period`)
	client := server.Client(t)
	require.NoError(t, client.HSet(t.Context(), "throttle:{fleet}:policies", "text", "version: 1\npolicies: 7\n", "id", "by hand", "generation", "by hand").Err())
	require.Eventually(t, func() bool { return strings.Count(must(t, "status", at), "is refused: pushed:2:") == 3 }, time.Minute, 10*time.Millisecond)
	programs[2].say("go")
	programs[2].expect("sent")

	// Rolled back.
	out = must(t, "rollback", "2", "--yes", "--loosen", "--reason", "broken", at)
	require.Contains(t, out, "in force on 3 of 3 nodes that follow")
	programs[2].say("go")
	require.Contains(t, programs[2].hear(), `policy "shop" (3/h): would wait`)

	// A program that is killed is not waited for, once it is silent, but push says so.
	require.NoError(t, programs[0].cmd.Process.Kill())
	require.Eventually(t, func() bool { return strings.Contains(must(t, "status", at), "silent for") }, time.Minute, 100*time.Millisecond)
	code, out = throttleCommand(t, "push", file("2/h"), "--yes", at)
	require.Equal(t, exitFound, code)
	require.Contains(t, out, "in force on 2 of 3 nodes that follow")
	require.Regexp(t, `silent for \S+: it is not known what it has in force`, out)

	// Redis dies in the middle, and comes back empty: the programs keep what they have.
	server.Kill()
	code, out = throttleCommand(t, "status", at)
	require.Equal(t, exitStore, code)
	require.Contains(t, out, "connection refused")
	server.Restart()
	require.Eventually(t, func() bool {
		code, out := throttleCommand(t, "status", "--json", at)
		var s fleet.Snapshot
		return code == 0 && json.Unmarshal([]byte(out), &s) == nil && len(s.Nodes) == 2 &&
			!slices.ContainsFunc(s.Nodes, func(n fleet.Node) bool { return n.File.InForce == "" || n.File.Err == "" })
	}, time.Minute, 10*time.Millisecond)
	out = must(t, "push", file("5/h"), "--yes", at)
	require.Contains(t, out, "in force on 2 of 2 nodes that follow")
	require.Contains(t, must(t, "audit", at), "push")
}

// TestHungRedis: a Redis that accepts and does not answer is given up in time.
func TestHungRedis(t *testing.T) {
	server := redistest.Single(t)
	t.Setenv("THROTTLE_REDIS", server.URL())
	must(t, "status")
	server.Pause()
	for _, args := range [][]string{{"status"}, {"top", "--once"}, {"pause", "shop", "--for", "1m", "--yes"}, {"pull"}, {"audit"}} {
		begun := time.Now()
		code, out := throttleCommand(t, append(args, "--timeout", "200ms")...)
		require.Equal(t, exitStore, code, out)
		require.Less(t, time.Since(begun), 5*time.Second, "%v", args)
		require.Equal(t, "throttle: redisstore: "+server.Addr+": no answer in time\n", out)
	}
}

// made returns the value of a constructor that has no error.
func made[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
