package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
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

// sizes are the flags of a job that takes one to two seconds, of 44 and 16 pages.
var sizes = []string{"-orders", "2190", "-shipments", "1520"}

// TestJob: with its own services the job pulls each row once, and then finds nothing to do.
func TestJob(t *testing.T) {
	t.Parallel()
	args := append(slices.Clip(sizes), "-out", filepath.Join(t.TempDir(), "out"))
	out := start(t, args...).ends(0)
	require.Contains(t, out, "60 of 60 pages are there after ")
	require.Regexp(t, `orders: +44 calls, .*\nshipments: +16 calls, `, out)
	requireTruth(t, downstream.New(downstream.Options{}), args[len(args)-1], 2190, 1520)

	require.Contains(t, start(t, args...).ends(0), "; 60 were there before")
}

// TestFlags: what makes no sense is refused, and a password in a URL is not repeated.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-parts", "0"}, {"-parts", "2"}, {"-parts", "5", "-part", "5", "-redis", "r"}, {"-redis", "redis://:secret@host:port"}} {
		out := start(t, append(args, "-out", t.TempDir())...).ends(1)
		require.Contains(t, out, "-redis")
		require.NotContains(t, out, "secret")
	}
}

// TestInterrupted: after Ctrl-C the job ends with a count, leaves nothing half done, and resumes with the same command.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	var dir, out string
	var args []string
	until(t, func() bool {
		dir = t.TempDir()
		args = append(slices.Clip(sizes), "-out", dir)
		p := start(t, args...)
		p.await("some pages", func() bool { return len(files(t, dir, "*.jsonl")) >= 10 })
		_ = p.cmd.Process.Signal(os.Interrupt) // an error says that it is gone already
		if p.ended() == 0 {
			return false // it was done
		}
		out = p.ends(1)
		return true
	})
	require.Contains(t, out, "batch: the same command pulls the rest: interrupt signal received")
	require.Empty(t, files(t, dir, ".*"))

	there := len(files(t, dir, "*.jsonl"))
	require.Equal(t, there, number(t, out, " of 60 pages are there"))
	require.Equal(t, there, number(t, start(t, args...).ends(0), " were there before"))
	requireTruth(t, downstream.New(downstream.Options{}), dir, 2190, 1520)
}

// TestKilled: however often the job is killed, each row is there once, and a page that is done is not pulled again.
func TestKilled(t *testing.T) {
	t.Parallel()
	orders, shipments, kills := soak.Most(24_000, 8000), soak.Most(6000, 2000), soak.Most(15, 5)
	// A program without Redis does not know what it sent before it was killed.
	up := newUpstream(t, downstream.Options{Orders: orders, Shipments: shipments, Latency: 5 * time.Millisecond, Tolerance: 1e6})
	dir := t.TempDir()
	args := []string{"-out", dir, "-services", up.address, "-orders", strconv.Itoa(orders), "-shipments", strconv.Itoa(shipments)}
	pages := (orders+49)/50 + (shipments+99)/100

	for there := 0; kills > 0 && there < pages*3/4; kills-- {
		p := start(t, args...)
		p.await("another page", func() bool { return len(files(t, dir, "*.jsonl")) > there })
		time.Sleep(rand.N(100 * time.Millisecond)) // awaits nothing: any moment will do
		p.kill()

		pulled := files(t, dir, "*.jsonl")
		there = len(pulled)
		for _, name := range pulled {
			source, ids, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".jsonl"), "-")
			first, last, _ := strings.Cut(ids, "-")
			from, to := number(t, first, ""), number(t, last, "")
			if source == "orders" {
				requireRows(t, up.Orders(from, to), dir, filepath.Base(name))
			} else {
				requireRows(t, up.Shipments(from, to), dir, filepath.Base(name))
			}
		}
	}

	there, calls := len(files(t, dir, "*.jsonl")), len(up.Calls())
	require.Equal(t, there, number(t, start(t, args...).ends(0), " were there before"))
	requireTruth(t, up.Services, dir, orders, shipments)
	require.Equal(t, pages-there, len(up.Calls())-calls)
}

// TestBanned: a ban closes the budgets of both services, and the job goes on after it. Only what was
// on its way when the ban came is refused, and the first calls after it.
func TestBanned(t *testing.T) {
	t.Parallel()
	until(t, func() bool {
		up := newUpstream(t, downstream.Options{Tolerance: 2})
		dir := t.TempDir()
		p := start(t, append(slices.Clip(sizes), "-out", dir, "-services", up.address)...)
		p.await("some pages", func() bool { return len(files(t, dir, "*.jsonl")) >= 10 })
		up.Ban(2 * time.Second)
		p.ends(0)

		requireTruth(t, up.Services, dir, 2190, 1520)
		refused := up.refused()
		require.LessOrEqual(t, refused[false], workers, "no worker goes on during a ban")
		require.LessOrEqual(t, refused[true], 2*downstream.QueriesAtOnce, "no worker goes on during a ban")
		require.Len(t, up.Calls(), 60+refused[false]+refused[true], "each page is pulled once, and once more for each refusal")
		return refused[false]+refused[true] > 0 // else all calls were made before the ban
	})
}

// TestMachines: three programs share the limits by Redis, and pull each page once. Redis is killed
// meanwhile, with all that it knows: nothing is sent until Redis is back, and the job goes on.
func TestMachines(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	until(t, func() bool {
		up := newUpstream(t, downstream.Options{Tolerance: 2})
		dir := t.TempDir()
		args := []string{"-orders", "4000", "-shipments", "2000", "-out", dir, "-services", up.address, "-redis", redis.URL(), "-parts", "3", "-part"}
		var all []*process
		for part := range 3 {
			all = append(all, start(t, append(args, strconv.Itoa(part))...))
		}

		all[0].await("some pages", func() bool { return len(files(t, dir, "*.jsonl")) >= 40 })
		redis.Kill()
		told := true
		for _, p := range all {
			p.await("it is told that Redis is away", func() bool { return strings.Contains(p.output(), "the store does not answer") })
			told = told && strings.Contains(p.output(), "the store does not answer")
		}
		if told {
			require.Less(t, len(up.Calls()), 100, "the job does not go on without Redis")
		}
		redis.Restart()
		for part, p := range all {
			require.Contains(t, p.ends(0), []string{"34 of 34", "34 of 34", "32 of 32"}[part]+" pages are there after ")
		}

		requireTruth(t, up.Services, dir, 4000, 2000)
		require.Empty(t, up.refused())
		require.Len(t, up.Calls(), 100, "each page is pulled once")
		if told {
			up.checkPace(t)
		}
		return told // else a program was done before Redis was killed
	})
}

// until plays a scene until what the test does comes in time: on a busy machine the program may be done before. It
// takes a second or two.
func until(t *testing.T, inTime func() bool) {
	t.Helper()
	for range 10 {
		if inTime() {
			return
		}
	}
	t.Fatal("the program is always done too early")
}

// TestServicesAway: the job ends, and says why.
func TestServicesAway(t *testing.T) {
	soak.Only(t)
	out := start(t, append(sizes, "-out", t.TempDir(), "-services", "127.0.0.1:1")...).ends(1)
	require.Contains(t, out, "0 of 60 pages are there")
	require.Regexp(t, `page (orders|shipments)-\d+-\d+.jsonl: .*connection refused`, out)
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

// kill ends the program with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it is gone already
	<-p.gone
}

// ended waits for the end of the program, and returns its exit code.
func (p *process) ended() int {
	p.t.Helper()
	select {
	case <-p.gone:
	case <-time.After(2 * time.Minute): // keeps a failure from lasting forever
		p.t.Fatalf("the program does not end: %s", p.output())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends waits for the end of the program, which must have an exit code, and returns what the
// program has written.
func (p *process) ends(exit int) string {
	p.t.Helper()
	require.Equal(p.t, exit, p.ended(), p.output())
	return p.output()
}

// await waits until something is so, or the program has ended.
func (p *process) await(what string, so func() bool) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		select {
		case <-p.gone:
			return true
		default:
			return so()
		}
	}, time.Minute, time.Millisecond, "not %s: %s", what, p.output())
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

// refused returns how many calls were refused, by whether the call is a query.
func (u upstream) refused() map[bool]int {
	n := make(map[bool]int)
	for _, c := range u.Calls() {
		if c.Refused {
			n[c.Query]++
		}
	}
	return n
}

// checkPace fails the test if more calls of a kind came than its limit allows from the first call to the last, and one second's
// worth. Calls that a busy machine delivers late shift within that time, but do not become more.
func (u upstream) checkPace(t *testing.T) {
	t.Helper()
	calls := make(map[bool][]time.Duration) // by whether the call is a query
	for _, c := range u.Calls() {
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

// TestTemporaryFilesOfOthers: a machine that is done removes what killed processes left, while a different machine's
// temporary files become pages.
func TestTemporaryFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	f, err := openFolder(dir, "orders", 50, 50, 0, 1)
	require.NoError(t, err)

	written := make(chan error, 1)
	go func() {
		var err error
		for i := range 300 {
			err = errors.Join(err, write(f, page{50*i + 1, 50*i + 50}, []int{7}))
		}
		written <- err
	}()

	for {
		err := f.removeTemporary()
		require.NoError(t, err)
		select {
		case err := <-written:
			require.NoError(t, err)
			return
		default:
		}
	}
}

// TestFolder: the parts of all machines are all ids, each once. Pages that were written are not missing for a job with
// another number of machines. What a killed process left is no page, and goes at the end, unless it is another machine's.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	open := func(part, parts int) *folder {
		f, err := openFolder(dir, "orders", 120, 50, part, parts)
		require.NoError(t, err)
		return f
	}
	all := []page{{1, 50}, {51, 100}, {101, 120}}
	require.Equal(t, all, open(0, 1).missing)
	require.Equal(t, []page{all[0], all[2]}, open(0, 2).missing)
	require.Equal(t, all[1:2], open(1, 2).missing)
	require.Empty(t, open(3, 4).missing)

	require.NoError(t, write(open(0, 1), all[1], []int{7, 8}))
	require.NoError(t, write(open(0, 1), all[2], []int{})) // a page without rows is done, too
	requireRows(t, []int{7, 8}, dir, "orders-0000000051-0000000100.jsonl")
	for _, left := range []string{".orders-0000000001-0000000050.jsonl.123", ".orders-0000000051-0000000100.jsonl.4"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, left), []byte("7\n"), 0o600))
	}

	require.Empty(t, open(1, 2).missing)
	require.NoError(t, open(1, 2).removeTemporary())
	require.Equal(t, []string{filepath.Join(dir, ".orders-0000000001-0000000050.jsonl.123")}, files(t, dir, ".*"), "it is of the other machine")
	require.Equal(t, all[:1], open(0, 1).missing)

	// Pages of another size or of fewer ids would be there twice.
	for _, other := range [][2]int{{120, 60}, {110, 50}} {
		_, err := openFolder(dir, "orders", other[0], other[1], 0, 1)
		require.ErrorContains(t, err, "do not begin or end where pages do now: use another folder")
	}
	_, err := openFolder(dir, "shipments", 70, 20, 0, 1)
	require.NoError(t, err, "another source")
}

// TestWriteFails: a page that cannot be written has no name, and leaves nothing.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	f, err := openFolder(dir, "orders", 50, 50, 0, 1)
	require.NoError(t, err)
	require.Error(t, write(f, page{1, 50}, []func(){nil}), "rows that are no JSON")
	require.NoError(t, os.Mkdir(filepath.Join(dir, f.name(page{1, 50})), 0o755)) // no file can have the name
	require.Error(t, write(f, page{1, 50}, []int{1}))
	require.Empty(t, files(t, dir, ".*"))
}
