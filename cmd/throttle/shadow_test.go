package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// sends finds where the guide has its program send requests.
var sends = regexp.MustCompile(`<!-- the program sends (\d+): (\d+) shadowed, (\d+) refused -->`)

// moment finds what differs from run to run.
var moment = regexp.MustCompile(`next start in \S+`)

// TestShadowGuide walks through docs/run/change.md: its files are written, its commands run, and the
// program sends where the page says so, under the policies that it has come to.
func TestShadowGuide(t *testing.T) {
	page, err := filepath.Abs("../../docs/run/change.md")
	require.NoError(t, err)
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	server := redistest.Single(t)
	t.Setenv("REDIS_URL", "redis://"+server.Addr)
	t.Chdir(t.TempDir())
	client := redis.NewClient(server.Options())
	defer client.Close()
	reporter := made(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: 50 * time.Millisecond}))
	defer reporter.Close()
	shadowed, refused := 0, 0
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: reporter, Base: answers{}, MaxWait: -1,
		Observe: func(_ context.Context, e throttle.Event) {
			if e.Kind == throttle.EventShadowed {
				require.Equal(t, "orders", e.Policy)
				require.InDelta(t, time.Hour, e.Duration, float64(time.Minute))
				shadowed++
			}
		},
	}))
	walk := &transcript{T: t}
	var replayed strings.Builder
	rest := string(written)
	for {
		at := sends.FindStringSubmatchIndex(rest)
		if at == nil {
			replayed.WriteString(walk.replay(rest))
			break
		}
		replayed.WriteString(walk.replay(rest[:at[0]]) + rest[at[0]:at[1]])
		number := func(i int) int { n, _ := strconv.Atoi(rest[at[2*i]:at[2*i+1]]); return n }
		f, err := policyfile.Load("policies.yaml")
		require.NoError(t, err)
		require.NoError(t, transport.SetPolicies(f.Policies))
		shadowed, refused = 0, 0
		for range number(1) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/v1/orders", nil)
			require.NoError(t, err)
			if _, err = transport.RoundTrip(req); err != nil {
				require.True(t, errors.Is(err, throttle.ErrLimited), err)
				refused++
			}
		}
		require.Equal(t, number(2), shadowed)
		require.Equal(t, number(3), refused)
		rest = rest[at[1]:]
	}
	samePage(t, page, string(written), replayed.String(), moment)
	require.Eventually(t, func() bool {
		var out strings.Builder
		run(t.Context(), []string{"status", "--redis", "redis://" + server.Addr}, &out, &out)
		return strings.Contains(out.String(), "orders") && strings.Contains(out.String(), "3 of 2 used")
	}, time.Minute, 50*time.Millisecond)
}

// TestViewOfAPause: what an operator said of a pause is shown, also of a budget that nobody uses.
func TestViewOfAPause(t *testing.T) {
	var s fleet.Snapshot
	s.Budgets = []fleet.Budget{{
		Name: "shop", Err: "no node says what its limit is", Note: &fleet.Note{By: "anna", Reason: "the shop moves"},
		State: fleet.State{Paused: fleet.Millis{Duration: time.Hour}},
	}}
	row := strings.Join(newView(&s, "", nil).budgets.rows[0], " ")
	require.Contains(t, row, `paused by anna: "the shop moves" (1h`)
	require.Contains(t, row, "no node says what its limit is")
}

// TestViewOfAFilter: programs that a filter leaves out are not said to be silent.
func TestViewOfAFilter(t *testing.T) {
	var s fleet.Snapshot
	require.Equal(t, []string{"no program reports itself: see docs/run/fleet.md"}, newView(&s, "", nil).head)
	require.Equal(t, []string{`no program has "shop"`}, newView(&s, "shop", nil).head)
}

// TestViewOfALostFile: a program that has the last file in force refuses nothing when Redis
// loses that file.
func TestViewOfALostFile(t *testing.T) {
	f := &fleet.FileState{Pushed: true, InForce: "aa", Seen: "aa", Err: fleet.ErrNothingPushed.Error()}
	require.Equal(t, "aa; the next cannot be read: fleet: no file of policies is pushed", fileWords(f, nil))
	f.Seen = "bb"
	require.Contains(t, fileWords(f, nil), "bb is refused")
}

// TestPushNamesTheSilent: a node of which nobody knows what it has in force is not left out.
func TestPushNamesTheSilent(t *testing.T) {
	silent := fleet.Node{Program: "shop", ID: "abcdef", Silent: true, Ago: fleet.Millis{Duration: 20 * time.Second}}
	silent.File = fleet.FileState{Pushed: true, InForce: "aa"}
	list, settled := followers([]fleet.Node{silent}, "bb")
	require.True(t, settled, "nobody waits for it")
	require.Equal(t, []nodeStatus{{Node: "shop/abcdef", Text: "silent for 20s: it is not known what it has in force"}}, list)
}

// TestWordsOfSlots: a budget whose slots are all taken, or whose callers stand in line, has no room for a newcomer. The wait for a slot is
// not known, and 0 in a status.
func TestWordsOfSlots(t *testing.T) {
	for want, now := range map[string]fleet.State{
		"1 of 2 in flight, room now":                                              {Used: 1},
		"2 of 2 in flight, next start when a request ends":                        {Used: 2},
		"2 of 2 in flight, 3 wait, next start when a request ends":                {Used: 2, Waiting: 3, Callers: 3},
		"1 of 2 in flight, 1 wait at a cost of 2, next start when a request ends": {Used: 1, Waiting: 2, Callers: 1},
	} {
		require.Equal(t, want, strings.Join(stateWords(throttle.Concurrency(2), now), ", "))

		// explain exits with 1 for the same states.
		st := throttle.Status{Limit: throttle.Concurrency(2), Used: now.Used, Waiting: now.Waiting, Callers: now.Callers}
		e := explanation{Policies: []explained{{State: &state{status: st}}}}
		require.Equal(t, !strings.HasSuffix(want, "room now"), e.held(), want)
	}
}

// TestStatusSaysWhatMattersFirst: the verdict stands in the first line, what is closed and who waits stand first and are readable at 100 columns,
// and 300 tenants of one policy take six rows.
func TestStatusSaysWhatMattersFirst(t *testing.T) {
	closed := fleet.Budget{
		Name: "dingtalk per app and address/f32021364bac", Policy: "dingtalk per app and address", Limits: []string{"20/s"}, Nodes: 2,
		Since: time.Date(2026, 11, 2, 10, 10, 0, 0, time.UTC), By: fleet.ByAnswer, Met: "importer", Oldest: fleet.Millis{Duration: 78 * time.Second}, Left: 1,
		Programs: []fleet.Use{{Program: "importer", Nodes: 1, Waiting: 2}, {Program: "worker", Nodes: 1, Waiting: 1}},
		State:    fleet.State{Paused: fleet.Millis{Duration: 222 * time.Second}, Waiting: 600, Callers: 3, Wait: fleet.Millis{Duration: 222 * time.Second}},
	}
	s := &fleet.Snapshot{Budgets: []fleet.Budget{closed}, Nodes: []fleet.Node{{Program: "worker", ID: "Zz81cD", Silent: true}}}
	for i := range 300 {
		s.Budgets = append(s.Budgets, fleet.Budget{Name: fmt.Sprintf("tenant/%012x", i), Policy: "tenant", Limits: []string{"10/s"}, Nodes: 1, Starts: 2, Cost: 2})
	}
	v := newView(s, "", nil)
	require.Equal(t, "1 closed, 3 wait, 1 program silent", v.head[0])
	var cut []string
	for _, line := range v.budgets.lines() {
		cut = append(cut, strings.TrimRight(ansi.Truncate(line, 100, ""), " "))
	}
	require.Equal(t, `BUDGET                                     STATE                 LIMIT  NODES  STARTS  COST   DETAIL
dingtalk per app and address/f32021364bac  closed 3m42s, 3 wait  20/s   2      -       -      by an
tenant/000000000000                        open                  10/s   1      2.0/s   2.0/s  0 of 1
tenant/000000000001                        open                  10/s   1      2.0/s   2.0/s  0 of 1
tenant/000000000002                        open                  10/s   1      2.0/s   2.0/s  0 of 1
tenant/000000000003                        open                  10/s   1      2.0/s   2.0/s  0 of 1
tenant/000000000004                        open                  10/s   1      2.0/s   2.0/s  0 of 1
tenant: 295 others                         open                  10/s          590/s   590/s  name t`, strings.Join(cut, "\n"))
	require.Equal(t, "by an answer to importer, since 10:10:00, waiting: importer 2, worker 1; the oldest for 1m18s, in the last minute 1 left, 0 refused, "+
		"0 of 20 used, 3 wait at a cost of 600, closed for 3m42s, next start in 3m42s", v.budgets.rows[0][6])

	require.NoError(t, pick(s, "tenant", false))
	require.Len(t, newView(s, "tenant", nil).budgets.rows, 300)
	require.EqualError(t, pick(s, "nope", false), `"nope" is no policy or budget that was used lately, or is closed`)
	s.Budgets, s.LeftOut, s.ClosedLeftOut = append(s.Budgets[:0:0], closed), 3, 3
	require.Equal(t, "4 closed, 3 wait, 1 program silent", newView(s, "", nil).head[0])
	require.EqualError(t, pick(s, "nope", false), `"nope" is not among the 1 budget read, and 3 more are left out: pass a larger --budgets`)
	s.LeftOut, s.ClosedLeftOut = 0, 0
	s.Budgets = append(s.Budgets[:0:0], closed, fleet.Budget{Name: "open", Policy: "open"})
	require.NoError(t, pick(s, "", true))
	require.Len(t, s.Budgets, 1)
}
