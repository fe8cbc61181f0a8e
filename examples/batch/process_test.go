package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

// programVariable makes the test binary the program.
const programVariable = "THROTTLE_BATCH"

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(programVariable); ok {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process is the program, started by a test.
type process struct {
	t   *testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	text bytes.Buffer

	gone <-chan struct{}
}

// start starts the program. It ends with the test at the latest.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append(os.Environ(), programVariable+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	var err error
	p.gone, err = crew.Spawn(p.cmd)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	return p
}

// Write notes what the program writes.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// output returns what the program has written.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// ended reports whether the program has ended.
func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// kill ends the program with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it is gone already
	<-p.gone
}

// ends waits for the end of the program, which must have an exit code, and returns what the
// program has written.
func (p *process) ends(exit int) string {
	p.t.Helper()
	select {
	case <-p.gone:
	case <-time.After(2 * time.Minute): // keeps a failure from lasting forever
		p.t.Fatalf("the program does not end: %s", p.output())
	}
	require.Equal(p.t, exit, p.cmd.ProcessState.ExitCode(), p.output())
	return p.output()
}

// await waits until something is so while the program runs.
func (p *process) await(what string, so func() bool) {
	p.t.Helper()
	p.awaitOrEnd(what, so)
	require.True(p.t, so(), "the program has ended before %s: %s", what, p.output())
}

// awaitOrEnd waits until something is so, or the program has ended.
func (p *process) awaitOrEnd(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !so() && !p.ended(); time.Sleep(time.Millisecond) {
		require.True(p.t, time.Now().Before(end), "not %s: %s", what, p.output())
	}
}

// An upstream is the services, in the process of the test.
type upstream struct {
	*downstream.Services
	address string
}

func newUpstream(t *testing.T, o downstream.Options) upstream {
	services := downstream.New(o)
	server := httptest.NewServer(services)
	t.Cleanup(server.Close)
	return upstream{services, server.Listener.Addr().String()}
}

// pages returns how many calls for pages came, and how many of these were refused, by the API and
// by the database.
func (u upstream) pages() (calls, byAPI, byDatabase int) {
	for _, c := range u.Counts().Calls {
		switch {
		case c.OfUser:
			continue
		case c.Refused && c.Query:
			byDatabase++
		case c.Refused:
			byAPI++
		}
		calls++
	}
	return calls, byAPI, byDatabase
}

// keepsPace requires that no more calls of a kind came than its limit allows from the first call to the last, and one second's
// worth. Calls that a busy machine delivers late shift within that time, but do not become more.
func (u upstream) keepsPace(t *testing.T) {
	t.Helper()
	calls := make(map[bool][]time.Duration) // by whether the call is a query
	for _, c := range u.Counts().Calls {
		calls[c.Query] = append(calls[c.Query], c.At)
	}
	for query, perSecond := range map[bool]int{false: downstream.OrdersPerSecond, true: downstream.QueriesPerSecond} {
		at := calls[query]
		require.NotEmpty(t, at)
		length := at[len(at)-1] - at[0]
		require.LessOrEqual(t, float64(len(at)), float64(perSecond)*(length.Seconds()+1), "of queries: %v", query)
	}
}

// files returns the files of a folder that match a pattern, in the order of their names.
func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	return names
}

// requireTruth requires that a folder has each row once, and nothing else.
func requireTruth(t *testing.T, s *downstream.Services, dir string, orders, shipments int) {
	t.Helper()
	requireRows(t, s.Orders(1, orders), dir, "orders-*.jsonl")
	requireRows(t, s.Shipments(1, shipments), dir, "shipments-*.jsonl")
	require.Empty(t, files(t, dir, ".*"), "of killed processes")
}

func requireRows[Row any](t *testing.T, want []Row, dir, pattern string) {
	t.Helper()
	var truth, text bytes.Buffer
	for _, row := range want {
		require.NoError(t, json.NewEncoder(&truth).Encode(row))
	}
	for _, name := range files(t, dir, pattern) {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		text.Write(page)
	}
	if truth.String() != text.String() {
		t.Fatalf("%s: %d rows in place of %d, or others", pattern, bytes.Count(text.Bytes(), []byte("\n")), len(want))
	}
}

// number returns the number before a text in what the program wrote.
func number(t *testing.T, out, before string) int {
	t.Helper()
	found := regexp.MustCompile(`(\d+)` + regexp.QuoteMeta(before)).FindStringSubmatch(out)
	require.NotNil(t, found, out)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// row returns the fields of the line of a source in the report.
func row(t *testing.T, out, source string) []string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + source + ` +\d+ +\d+ .*$`).FindString(out)
	require.NotEmpty(t, line, out)
	return strings.Fields(line)
}
