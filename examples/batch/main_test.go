package main

import (
	"encoding/xml"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// sizes are the flags of a job that takes one to two seconds, of 44 and 16 pages.
var sizes = []string{"-orders", "2190", "-shipments", "1520"}

// tolerant is services that refuse calls only above twice the limit that the job keeps to, because a busy machine delivers calls
// late. Whether the job keeps to its limit is what keepsPace looks at.
var tolerant = downstream.Options{
	OrdersPerSecond: 2 * downstream.OrdersPerSecond, QueriesPerSecond: 2 * downstream.QueriesPerSecond,
	QueriesAtOnce: 2 * downstream.QueriesAtOnce,
}

// TestJob: with its own services the job pulls each row once, reports, and then finds nothing to do.
func TestJob(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	out := start(t, append(sizes, "-out", dir)...).ends(0)
	require.Contains(t, out, "60 of 60 pages are there after ")
	require.NotContains(t, out, "were there before")
	require.Equal(t, []string{"44", "1792"}, row(t, out, "orders")[1:3])
	require.Contains(t, out, "a user, who goes before the job")
	requireTruth(t, downstream.New(downstream.Options{}), dir, 2190, 1520)
	picture, err := os.ReadFile(filepath.Join(dir, "report.svg"))
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(picture, new(struct{})))
	require.NotContains(t, string(picture), "%!")

	out = start(t, append(sizes, "-out", dir)...).ends(0)
	require.Contains(t, out, "60 of 60 pages are there after ")
	require.Contains(t, out, "; 60 were there before")
}

// TestInterrupted: after Ctrl-C the job ends with its report, leaves nothing half done, and goes on
// with the same command.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := append(sizes, "-out", dir)
	p := start(t, args...)
	p.await("some pages", func() bool { return len(files(t, dir, "*.jsonl")) >= 10 })
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	out := p.ends(1)
	require.Contains(t, out, "batch: interrupt signal received")
	require.Contains(t, out, "the same command pulls the rest")
	require.Empty(t, files(t, dir, ".*"))
	there := len(files(t, dir, "*.jsonl"))
	require.Equal(t, there, number(t, out, " of 60 pages are there"))

	require.Equal(t, there, number(t, start(t, args...).ends(0), " were there before"))
	requireTruth(t, downstream.New(downstream.Options{}), dir, 2190, 1520)
}

// TestKilled: however often the job is killed, at whatever moment, each row is there once.
func TestKilled(t *testing.T) {
	t.Parallel()
	orders, shipments, hits := soak.Most(60_000, 8000), soak.Most(20_000, 2000), soak.Most(40, 3)
	up := newUpstream(t, downstream.Options{
		Orders: orders, Shipments: shipments, Latency: 5 * time.Millisecond,
		// A program without Redis does not know what it sent before it was killed.
		OrdersPerSecond: 1e6, QueriesPerSecond: 1e6, QueriesAtOnce: 1e6,
	})
	dir := t.TempDir()
	args := []string{"-out", dir, "-services", up.address, "-orders", strconv.Itoa(orders), "-shipments", strconv.Itoa(shipments)}
	pages := (orders+49)/50 + (shipments+99)/100
	kills, hit, there := 0, 0, 0
	for ; (hit < hits || there == 0) && there < pages*3/4; kills++ {
		calls, _, _ := up.pages()
		p := start(t, args...)
		p.awaitOrEnd("another call", func() bool { n, _, _ := up.pages(); return n > calls })
		written := len(files(t, dir, ".*"))
		if kills%2 == 0 {
			time.Sleep(rand.N(100 * time.Millisecond)) // awaits nothing: any moment will do
		} else {
			// The files of a stopped program stay as they are, so a look at them takes as long as it takes.
			for p.stop(); !p.ended() && len(files(t, dir, ".*")) == written; p.stop() {
				p.goOn()
				time.Sleep(rand.N(3 * time.Millisecond))
			}
		}
		p.kill()
		if len(files(t, dir, ".*")) > written {
			hit++
		}
		requireWhole(t, up, dir)
		there = len(files(t, dir, "*.jsonl"))
	}

	calls, _, _ := up.pages()
	require.Equal(t, there, number(t, start(t, args...).ends(0), " were there before"))
	requireTruth(t, up.Services, dir, orders, shipments)
	after, _, _ := up.pages()
	require.Equal(t, pages-there, after-calls, "a page that is done is not pulled again")
	t.Logf("%d kills, of which %d hit a page that was being written; %d calls for %d pages", kills, hit, after, pages)
	require.Positive(t, hit, "no kill has hit a page that was being written")
}

// requireWhole requires that each page of a folder has all its rows.
func requireWhole(t *testing.T, up upstream, dir string) {
	t.Helper()
	for _, name := range files(t, dir, "*.jsonl") {
		source, ids, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".jsonl"), "-")
		first, last, _ := strings.Cut(ids, "-")
		from, err := strconv.Atoi(first)
		require.NoError(t, err)
		to, err := strconv.Atoi(last)
		require.NoError(t, err)
		if source == "orders" {
			requireRows(t, up.Orders(from, to), dir, filepath.Base(name))
		} else {
			requireRows(t, up.Shipments(from, to), dir, filepath.Base(name))
		}
	}
}

// TestBanned: a ban closes the budgets of both services, and the job goes on after it. Only what was
// on its way when the ban came is refused, and the first calls after it.
func TestBanned(t *testing.T) {
	t.Parallel()
	up := newUpstream(t, tolerant)
	dir := t.TempDir()
	p := start(t, append(sizes, "-out", dir, "-services", up.address)...)
	p.await("some pages", func() bool { return len(files(t, dir, "*.jsonl")) >= 10 })
	up.Ban(2 * time.Second)
	out := p.ends(0)
	requireTruth(t, up.Services, dir, 2190, 1520)
	calls, byAPI, byDatabase := up.pages()
	require.Positive(t, byAPI+byDatabase, out)
	require.LessOrEqual(t, byAPI, workers, "no worker goes on during a ban")
	require.LessOrEqual(t, byDatabase, 2*downstream.QueriesAtOnce, "no worker goes on during a ban")
	require.Equal(t, 60+byAPI+byDatabase, calls, "each page is pulled once, and once more for each refusal")
}

// TestMachines: three programs share the limits by Redis, and pull each page once. Redis is killed
// meanwhile, with all that it knows: nothing is sent until Redis is back, and the job goes on.
func TestMachines(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	up := newUpstream(t, tolerant)
	dir := t.TempDir()
	args := []string{
		"-orders", "4000", "-shipments", "2000", "-out", dir, "-services", up.address,
		"-redis", redis.URL(), "-parts", "3", "-part",
	}
	var all []*process
	for part := range 3 {
		all = append(all, start(t, append(args, strconv.Itoa(part))...))
	}
	all[0].await("some pages", func() bool { return len(files(t, dir, "*.jsonl")) >= 40 })
	redis.Kill()
	for _, p := range all {
		p.await("it is told that Redis is away", func() bool { return strings.Contains(p.output(), "the store does not answer") })
	}
	away, _, _ := up.pages()
	require.Less(t, away, 100, "the job does not go on without Redis")
	redis.Restart()
	for part, p := range all {
		require.Contains(t, p.ends(0), []string{"34 of 34", "34 of 34", "32 of 32"}[part]+" pages are there after ")
	}
	requireTruth(t, up.Services, dir, 4000, 2000)
	up.keepsPace(t)
	calls, byAPI, byDatabase := up.pages()
	require.Zero(t, byAPI+byDatabase, "calls that were refused")
	require.Equal(t, 100, calls, "each page is pulled once")
}

// TestEndOfNight: a job whose time is over stops.
func TestEndOfNight(t *testing.T) {
	t.Parallel()
	out := start(t, "-out", t.TempDir(), "-for", "1500ms").ends(1)
	require.Contains(t, out, "the same command pulls the rest")
	require.Contains(t, out, "batch: the time is over\n")
}

// TestServicesAway: the job gives up when many pages have failed, and says why.
func TestServicesAway(t *testing.T) {
	soak.Only(t)
	dir := t.TempDir()
	out := start(t, append(sizes, "-out", dir, "-services", "127.0.0.1:1")...).ends(1)
	require.Contains(t, out, "0 of 60 pages are there")
	require.Regexp(t, `pages of orders failed \d+ times, at last because: .*connection refused`, out)
	require.Regexp(t, `pages of shipments failed \d+ times, at last because: .*connection refused`, out)
	require.Empty(t, files(t, dir, "*.jsonl"))
}
