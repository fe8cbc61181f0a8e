package pushed_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/policyfile/pushed"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// version is a file with one policy of that limit.
func version(limit string) []byte {
	return []byte("version: 1\npolicies:\n  - {name: a, match: example.com/, limit: " + limit + "}\n")
}

func push(t *testing.T, all *fleet.Fleet, text []byte) int64 {
	c, err := pushed.Compare(t.Context(), all, "new", text)
	require.NoError(t, err)
	number, err := c.Push(t.Context(), "push", "anna", "why")
	require.NoError(t, err)
	return number
}

// A follower is a program that follows what is pushed.
type follower struct {
	*policyfile.Follower
	reporter *fleet.Reporter
}

// follow starts a program that looks every few milliseconds.
func follow(t *testing.T, client redis.UniversalClient, path string) *follower {
	reporter := must(fleet.Start(client, memstore.New(), fleet.ReporterOptions{Interval: 10 * time.Millisecond}))
	t.Cleanup(reporter.Close)
	f, err := pushed.Follow(t.Context(), reporter, policyfile.Options{
		Path: path, Interval: 5 * time.Millisecond, Grace: 200 * time.Millisecond,
		Apply: func(*policyfile.File) error { return nil },
	})
	require.NoError(t, err)
	return &follower{f, reporter}
}

// awaitLimit waits until a limit is in force, and the fleet sees it.
func (f *follower) awaitLimit(t *testing.T, all *fleet.Fleet, limit string) {
	generation := policyfile.Generation(version(limit))
	require.Eventually(t, func() bool {
		nodes, err := all.Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].File.InForce == generation &&
			f.File().Policies[0].Limit.String() == limit
	}, time.Minute, time.Millisecond)
}

// TestFollow: a program has the file at its path in force until one is pushed, then what is
// pushed, whatever is lost.
func TestFollow(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(path, version("20/s"), 0o600))
	f := follow(t, client, path)
	f.awaitLimit(t, all, "20/s")

	require.EqualValues(t, 1, push(t, all, version("10/s")))
	f.awaitLimit(t, all, "10/s")
	require.EqualValues(t, 2, push(t, all, version("40/s"))) // after the grace
	f.awaitLimit(t, all, "40/s")

	require.NoError(t, client.FlushDB(t.Context()).Err())
	require.Eventually(t, func() bool { return f.State().Err != nil }, time.Minute, time.Millisecond)
	require.ErrorIs(t, f.State().Err, fleet.ErrNothingPushed)
	f.awaitLimit(t, all, "40/s")
}

// TestBrokenFile: a file that somebody writes into Redis by hand is refused by nodes, which
// say why, and keep the one before.
func TestBrokenFile(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	push(t, all, version("20/s"))
	f := follow(t, client, "")
	f.awaitLimit(t, all, "20/s")
	require.NoError(t, client.HSet(t.Context(), "throttle:{fleet}:policies", "text", version("20/fortnight"), "id", "by hand").Err())
	require.Eventually(t, func() bool {
		nodes, err := all.Nodes(t.Context())
		return err == nil && nodes[0].File.Err != ""
	}, time.Minute, time.Millisecond)
	nodes, err := all.Nodes(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^pushed:3:\d+: limit "20/fortnight": "fortnight" is not a period`, nodes[0].File.Err)
	require.Equal(t, policyfile.Generation(version("20/s")), nodes[0].File.InForce)
}

// TestCompare: what cannot be pushed is refused, and what loosens is said.
func TestCompare(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	_, err := pushed.Compare(t.Context(), all, "new", version("20/fortnight"))
	require.ErrorContains(t, err, "new:3:")
	_, err = pushed.Compare(t.Context(), all, "new", append(version("20/s"), "tests:\n  - {request: GET https://other.com/, policies: [a]}\n"...))
	require.ErrorContains(t, err, `the request does not match policy "a"`)

	_, err = pushed.Compare(t.Context(), all, "new", append(version("20/s"), make([]byte, fleet.MostText)...))
	require.EqualError(t, err, "new: the file has 262213 bytes; 262144 are the most that can be pushed")
	require.Len(t, policyfile.Mistakes(err), 1)

	push(t, all, version("20/s"))
	c, err := pushed.Compare(t.Context(), all, "new", version("40/s"))
	require.NoError(t, err)
	require.Equal(t, []string{`policy "a": its limit goes from 20/s to 40/s`}, c.Loosens)
	require.False(t, c.Same)
	require.EqualValues(t, 1, c.Instead.Number)
	c, err = pushed.Compare(t.Context(), all, "new", version("20/s"))
	require.NoError(t, err)
	require.True(t, c.Same)
}

// TestUnreadable: a push is refused while a live node that does not read its version follows.
func TestUnreadable(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	reporter := must(fleet.Start(client, memstore.New(), fleet.ReporterOptions{Program: "old", Interval: time.Minute})) // it is not silent, however busy the machine is
	t.Cleanup(reporter.Close)
	reporter.ReportFile(func() fleet.FileState { return fleet.FileState{Reads: 2, Pushed: true} })
	reporter.ReportSoon()
	require.Eventually(t, func() bool {
		nodes, err := all.Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].File.Reads == 2
	}, time.Minute, time.Millisecond)
	_, err := pushed.Compare(t.Context(), all, "new", version("20/s"))
	var old *pushed.UnreadableError
	require.ErrorAs(t, err, &old)
	require.ErrorContains(t, err, "not every node reads version 1 of the form: old on ")

	// One that is gone does not count, though nobody has taken it from the index.
	reporter.Close()
	silent := `{"version":1,"program":"old","every_ms":1000,"file":{"reads":2,"pushed":true}}`
	require.NoError(t, client.Set(t.Context(), "throttle:{fleet}:node:gone", silent, 0).Err())
	require.NoError(t, client.ZAdd(t.Context(), "throttle:{fleet}:nodes", redis.Z{Score: float64(time.Now().Add(-time.Minute).UnixMicro()), Member: "gone"}).Err())
	nodes, err := all.Nodes(t.Context())
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	require.True(t, nodes[0].Silent)
	require.True(t, nodes[0].File.Pushed)
	_, err = pushed.Compare(t.Context(), all, "new", version("20/s"))
	require.NoError(t, err)
}

// TestTwoPushes: of two pushes at once one is done, and the other one says so.
func TestTwoPushes(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	for round := range 10 {
		var wg sync.WaitGroup
		errs := make([]error, 4)
		var changes []*pushed.Change
		for i := range errs {
			c, err := pushed.Compare(t.Context(), all, "new", version(fmt.Sprintf("%d/s", 10+i+round)))
			require.NoError(t, err)
			changes = append(changes, c)
		}
		for i, c := range changes {
			wg.Go(func() { _, errs[i] = c.Push(context.Background(), "push", "anna", "") })
		}
		wg.Wait()
		done := 0
		for _, err := range errs {
			var conflict *fleet.ConflictError
			if err == nil {
				done++
				continue
			}
			require.ErrorAs(t, err, &conflict)
			require.EqualValues(t, round+1, conflict.Number)
		}
		require.Equal(t, 1, done)
	}
	history, _, err := all.History(t.Context())
	require.NoError(t, err)
	require.Len(t, history, 10)
	acts, _, err := all.Audit(t.Context(), 100)
	require.NoError(t, err)
	require.Len(t, acts, 10)
	require.EqualValues(t, 10, acts[0].Number)
}

// TestRedisDiesUnderFollowers: the version in force stays, the state says why, and a push
// after that arrives.
func TestRedisDiesUnderFollowers(t *testing.T) {
	server := redistest.Single(t)
	client := server.Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	push(t, all, version("20/s"))
	f := follow(t, client, "")
	f.awaitLimit(t, all, "20/s")
	server.Kill()
	require.Eventually(t, func() bool { return f.State().Err != nil }, time.Minute, time.Millisecond)
	require.Equal(t, "20/s", f.File().Policies[0].Limit.String())
	server.Restart()
	require.Eventually(t, func() bool {
		_, err := all.Pushed(t.Context())
		return err == nil
	}, time.Minute, time.Millisecond)
	push(t, all, version("10/s"))
	f.awaitLimit(t, all, "10/s")
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
