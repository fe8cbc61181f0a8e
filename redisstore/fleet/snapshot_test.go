package fleet_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

var shop = throttle.Policy{Name: "shop", Keyed: true, Limit: store.PerHour(3), Jitter: -1}

// TestSnapshot: two programs and their budgets are seen, keys are hashed, and a program
// that has closed its reporter is gone.
func TestSnapshot(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, b := start(t, client, "importer"), start(t, client, "worker")
	acquire(t, limiter(t, a, shop), "acme", "acme", "other")
	acquire(t, limiter(t, b, shop), "acme")
	own := throttle.Policy{Name: "own", Limit: store.Concurrency(8), Scope: throttle.ScopeNode}
	acquire(t, limiter(t, b, own), "")
	a.Report()
	b.Report()
	require.NoError(t, a.Err())

	all := must(fleet.New(client, fleet.Options{}))
	s := snapshot(t, all)
	require.Len(t, s.Nodes, 2)
	require.Equal(t, "importer", s.Nodes[0].Program)
	require.Equal(t, os.Getpid(), s.Nodes[0].PID)
	require.False(t, s.Nodes[0].Silent)
	require.Equal(t, 2, s.Nodes[0].Budgets)
	require.Positive(t, s.Nodes[0].Starts)

	require.Len(t, s.Budgets, 3)
	acme := s.Budgets[0]
	if acme.Nodes == 1 {
		acme = s.Budgets[1]
	}
	require.Equal(t, "shop/f32021364bac", acme.Name)
	require.Equal(t, []string{"3/h"}, acme.Limits)
	require.Equal(t, 2, acme.Nodes)
	require.Equal(t, 3, acme.State.Used)
	require.Greater(t, acme.State.Wait.Duration, 59*time.Minute)
	require.Equal(t, b.ID(), budget(t, s, "own").Node)
	require.Equal(t, 1, budget(t, s, "own").State.Used)

	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.NotContains(t, string(text), "acme")

	a.Close()
	require.Len(t, snapshot(t, all).Nodes, 1)
}

// TestNothingInTheIndex: a fleet without reporters is empty, and not an error.
func TestNothingInTheIndex(t *testing.T) {
	s := snapshot(t, must(fleet.New(redistest.Shared(t).Client(t), fleet.Options{})))
	require.Empty(t, s.Nodes)
	require.Empty(t, s.Budgets)
	require.Nil(t, s.File)
}

// TestNonsense: entries of the index that somebody wrote by hand are counted, bounded and
// fit to be printed.
func TestNonsense(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	_, _, all := used(t, client, shop, "acme")
	hostile := `{"version":1,"program":"\u001b[2Jevil\u202e","span_ms":1,"up_ms":9223372036854775807,"every_ms":-5,
		"file":{"in_force":"\u0007","error":"` + strings.Repeat("é", 5000) + `","for_ms":-1},"left_out":-7,
		"policies":[{"policy":"\u001b]0;x\u0007","limit":"3/h","group":"{}","budgets":[
			{"key":"AAAAAAAAAAAAAAAAAAAAAA","starts":9223372036854775807},{"key":"AAA","starts":-1}]},
			{"policy":"p","limit":"no limit","budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA"}]},
			{"policy":"q","limit":"20 in flight","node":true,"budgets":[{"key":"AAAAAAAAAAAAAAAAAAAAAA"}]}]}`
	for i, record := range []string{
		hostile, "", "null", "[]", "{", `{"version":2}`, `{"version":1,"policies":7}`, "\xff\xfe", strings.Repeat("9", 70_000), `{"version":1e400}`,
	} {
		id := fmt.Sprintf("\x1b%d", i)
		do(t, client, "ZADD", all.NodesKey(), float64(time.Now().UnixMicro()), id)
		do(t, client, "SET", all.NodeKey(id), record)
	}
	do(t, client, "ZADD", all.NodesKey(), "inf", "no record", "-inf", "neither")
	do(t, client, "HSET", all.PausesKey(), "x", "y", strings.Repeat("00", 16), "99999999999999999 {}", strings.Repeat("01", 16),
		"9999999999999999 {\"policy\":\"\\u001bshop\",\"by\":\"\\u001b\",\"reason\":\"\\u0000\"}")
	do(t, client, "HSET", all.PoliciesKey(), "number", "many")
	zeros := strings.Repeat("00", 15)
	for i, said := range []string{
		`1 {"policy":"\u001bshop","limit":"3/h","by":"\u001b","met":"\u202e"}`, "", "1", "x {}", `1 {"limit":"none"}`, `1 {"limit":"3/h","node":true}`,
	} {
		id := fmt.Sprintf("%s%02x", zeros, i)
		do(t, client, "ZADD", all.BansKey(), "9e15", id, "9e15", "\x1b", "inf", "never")
		do(t, client, "SET", all.BanKey(id), said)
	}

	s := snapshot(t, all)
	require.Equal(t, 15, s.Illegible-2) // the pushed file and five bans among them, and beside them two budgets of the hostile record
	require.NotEmpty(t, budget(t, s, "shop").State.Used)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	for _, c := range []string{"\\u001b", "\\u0007", "\\u202e", "\x1b", "\u202e"} {
		require.NotContains(t, strings.ReplaceAll(string(text), `\\`, `|`), c)
	}
	require.Less(t, len(text), 10_000)
	require.Zero(t, s.LeftOut)

	for _, key := range []string{all.NodesKey(), all.PausesKey(), all.PoliciesKey()} {
		kept := do(t, client, "DUMP", key)
		do(t, client, "SET", key, "another type")
		again, err := all.Snapshot(t.Context(), 0)
		if key == all.PoliciesKey() { // of another type it is as illegible as with other fields
			require.NoError(t, err)
			require.Equal(t, s.Illegible, again.Illegible)
		} else {
			require.ErrorContains(t, err, "WRONGTYPE")
		}
		do(t, client, "RESTORE", key, 0, kept, "REPLACE")
	}
	require.NotEmpty(t, snapshot(t, all).Nodes)
}

// TestManyBudgets: if there are more budgets than a snapshot asks about, it shows those used most.
func TestManyBudgets(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a := start(t, client, "crowd")
	l := limiter(t, a, throttle.Policy{Name: "many", Keyed: true, Limit: store.PerHour(10)})
	for i := range 200 {
		acquire(t, l, fmt.Sprint(i))
	}
	for range 5 {
		acquire(t, l, "busy")
	}
	a.Report()
	s, err := must(fleet.New(client, fleet.Options{})).Snapshot(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, s.Budgets, 10)
	require.Equal(t, 5, s.Budgets[0].State.Used)
	require.Equal(t, 191, s.LeftOut)
}

// TestSilent: a program that died is silent, and its budgets are no longer shown.
func TestSilent(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	a := must(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Interval: time.Minute}))
	defer a.Close()
	begun(t, a)
	acquire(t, limiter(t, a, shop), "acme")
	a.Report()
	do(t, client, "ZADD", all.NodesKey(), float64(time.Now().Add(-4*time.Minute).UnixMicro()), a.ID())
	s := snapshot(t, all)
	require.True(t, s.Nodes[0].Silent)
	require.Empty(t, s.Budgets)
	require.InDelta(t, float64(4*time.Minute), float64(s.Nodes[0].Ago.Duration), float64(time.Minute))
	ttl, err := client.PTTL(t.Context(), all.NodeKey(a.ID())).Result()
	require.NoError(t, err)
	require.Greater(t, ttl, 9*time.Minute)
}

// TestReader: the watcher of docs/run/redis.md can read all, and write nothing.
func TestReader(t *testing.T) {
	server := redistest.Single(t)
	admin := server.Client(t)
	used(t, admin, shop, "acme")
	client := newClient(t, server.User(t, "watcher", redistest.Rights(t, "../../docs/run/redis.md", "watcher")))
	require.Len(t, snapshot(t, must(fleet.New(client, fleet.Options{}))).Budgets, 1)

	before := do(t, admin, "DBSIZE")
	watching := must(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{}))
	defer watching.Close()
	watching.Report()
	require.Regexp(t, `it needs \+set, as docs/run/redis.md says|'set' command`, watching.Err().Error())
	require.True(t, fleet.Denied(watching.Err()))
	_, err := limiter(t, redisstore.New(client, redisstore.Options{}), shop).Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "new", 1)
	require.Error(t, err)
	require.Equal(t, before, do(t, admin, "DBSIZE"))
	require.NotContains(t, err.Error(), redistest.Password)
}

// TestCluster: the index lies in one slot, and budgets lie in the slots of their keys.
func TestCluster(t *testing.T) {
	client := redistest.Cluster(t).Client(t)
	a := start(t, client, "program")
	for i := range 6 {
		acquire(t, limiter(t, a, throttle.Policy{Name: fmt.Sprint("policy", i), Keyed: true, Limit: store.PerHour(10)}), "key")
	}
	a.Report()
	require.NoError(t, a.Err())
	s := snapshot(t, must(fleet.New(client, fleet.Options{})))
	require.Len(t, s.Budgets, 6)
	for _, b := range s.Budgets {
		require.Equal(t, 1, b.State.Used, b.Name)
	}
}

// TestRedisAway: a reporter whose Redis dies harms nobody, and reports again when it is back.
func TestRedisAway(t *testing.T) {
	server := redistest.Single(t)
	client := server.Client(t)
	a := start(t, client, "program")
	a.Report()
	require.NoError(t, a.Err())
	server.Kill()
	a.Report()
	require.ErrorContains(t, a.Err(), "connection refused")
	_, err := must(fleet.New(client, fleet.Options{})).Snapshot(t.Context(), 0)
	require.ErrorContains(t, err, "connection refused")
	require.False(t, fleet.Denied(err))
	server.Restart()
	a.Report()
	require.NoError(t, a.Err())
	require.Len(t, snapshot(t, must(fleet.New(client, fleet.Options{}))).Nodes, 1)
}

// TestProgramNamesAreClean: a program's name is shown to others, so a reporter cuts it, and escapes
// characters that control a terminal.
func TestProgramNamesAreClean(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	start(t, client, "caf\xe9 \x1b[2J"+strings.Repeat("x", 100_000))
	s := snapshot(t, must(fleet.New(client, fleet.Options{})))
	require.Len(t, s.Nodes, 1)
	require.Equal(t, `caf\xe9 \x1b[2J`+strings.Repeat("x", 200-len(`caf\xe9 \x1b[2J`))+"…", s.Nodes[0].Program)
}

// TestAnUnreadablePushedFile: foreign data in the key of the pushed file does not count as no file.
// Otherwise every push would fail as if somebody else had pushed meanwhile.
func TestAnUnreadablePushedFile(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	none, err := all.Pull(t.Context())
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = all.Push(t.Context(), 0, fleet.Pushed{Generation: "aa", Text: []byte("version: 1"), By: "anna"}, "push")
	require.NoError(t, err)
	keys, err := client.Keys(t.Context(), "*policies").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	do(t, client, "HSET", keys[0], "at", "yesterday")
	_, err = all.Pull(t.Context())
	require.ErrorContains(t, err, "the pushed file cannot be read: remove the key by PEXPIRE "+keys[0]+" 0, which an operator may send, and push again")
	do(t, client, "DEL", keys[0])
	_, err = all.Push(t.Context(), 0, fleet.Pushed{Generation: "bb", Text: []byte("version: 1"), By: "anna"}, "push")
	require.NoError(t, err)
}

// TestRefresh: Refresh reads the states of budgets and the notes of pauses anew, and reads no reports.
func TestRefresh(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	a, l, all := used(t, client, shop, "acme")
	first := snapshot(t, all)
	require.Equal(t, "shop", first.Budgets[0].Group, "a limiter without a Match has a group of its own")
	acquire(t, l, "acme")
	target, err := all.Find(t.Context(), fleet.Query{Name: "shop", Key: "acme"})
	require.NoError(t, err)
	require.NoError(t, all.Pause(t.Context(), target, time.Minute, "ann", "moves"))
	a.Close() // and its record is gone

	next, err := all.Refresh(t.Context(), first)
	require.NoError(t, err)
	require.Len(t, next.Nodes, 1)
	require.False(t, next.At.Before(first.At))
	require.GreaterOrEqual(t, next.Nodes[0].Ago.Duration, first.Nodes[0].Ago.Duration)
	require.Equal(t, 2, next.Budgets[0].State.Used)
	require.Positive(t, next.Budgets[0].State.Paused.Duration)
	require.Equal(t, "ann", next.Budgets[0].Note.By)
	require.Equal(t, 1, first.Budgets[0].State.Used, "the snapshot before stays as it was")
	require.Nil(t, first.Budgets[0].Note)

	early := *first
	early.At = first.At.AddDate(0, 0, -1)
	next, err = all.Refresh(t.Context(), &early)
	require.NoError(t, err)
	require.Greater(t, next.Nodes[0].Ago.Duration, 24*time.Hour)
	require.False(t, next.Nodes[0].Silent, "what was reported meanwhile is not known")

	require.NoError(t, all.Resume(t.Context(), target, "bob", ""))
	last, err := all.Refresh(t.Context(), next)
	require.NoError(t, err)
	require.Zero(t, last.Budgets[0].State.Paused.Duration)
	require.Nil(t, last.Budgets[0].Note)
}

// TestSharesOfAState: a state names the shares that wait most and counts the others, whoever tells it: the store, or the record of a node, which
// somebody may have written by hand.
func TestSharesOfAState(t *testing.T) {
	var st store.Status
	for i := range 30 {
		st.Shares = append(st.Shares, store.ShareStatus{Share: store.Share{ID: uint64(100 + i)}, Waiting: 30 - i, Served: i})
	}
	told := fleet.StateOf(st).Shares
	require.Len(t, told, fleet.MostShares+1)
	require.Equal(t, fleet.Share{Name: "00000000000064", Weight: 1, Waiting: 30}, told[0])
	require.Equal(t, fleet.Share{Name: "other", Waiting: 14 * 15 / 2, Served: 14 * (16 + 29) / 2, Shares: 14}, told[16])

	client := redistest.Shared(t).Client(t)
	reporter, _, all := used(t, client, throttle.Policy{Name: "own", Limit: store.Concurrency(8), Scope: throttle.ScopeNode}, "")
	record, err := client.Get(t.Context(), "throttle:{fleet}:node:"+reporter.ID()).Result()
	require.NoError(t, err)
	shares := strings.Repeat(`{"share":"\u001b[2J","waiting":1},`, 99)
	record = strings.Replace(record, `"state":{`, `"state":{"shares":[`+strings.TrimSuffix(shares, ",")+`],`, 1)
	require.NoError(t, client.Set(t.Context(), "throttle:{fleet}:node:"+reporter.ID(), record, time.Minute).Err())
	told = budget(t, snapshot(t, all), "own").State.Shares
	require.Len(t, told, fleet.MostShares+1)
	require.NotContains(t, told[0].Name, "\x1b")
}

// TestRunbooks: a budget has the runbook that a program's file names for its policy. A text that is no address of a page, as somebody may
// write by hand, does not count.
func TestRunbooks(t *testing.T) {
	client := redistest.Single(t).Client(t)
	reporter, _, all := used(t, client, throttle.Policy{Name: "shop", Limit: store.PerHour(5)}, "")
	acquire(t, limiter(t, reporter, throttle.Policy{Name: "other", Limit: store.PerHour(5)}), "")
	for text, want := range map[string]string{
		"https://wiki.example.com/shop?a=1#ban": "https://wiki.example.com/shop?a=1#ban",
		"javascript:alert(1)":                   "",
		"https://ann:secret@wiki.example.com":   "",
		"https:///shop":                         "",
		"https://a/\x1b":                        "",
		"":                                      "",
	} {
		reporter.ReportFile(func() fleet.FileState { return fleet.FileState{Runbooks: map[string]string{"shop": text}} })
		reporter.Report()
		s := snapshot(t, all)
		require.Equal(t, want, budget(t, s, "shop").Runbook, text)
		require.Empty(t, budget(t, s, "other").Runbook)
	}

	reporter.ReportFile(func() fleet.FileState { return fleet.FileState{} })
	reporter.Report()
	require.Empty(t, budget(t, snapshot(t, all), "shop").Runbook)

	record := `{"version": 1, "policies": [{"policy": "shop", "limit": "5/h", "runbook": "javascript:alert(1)"}]}`
	do(t, client, "SET", "throttle:{fleet}:node:by hand", record)
	do(t, client, "ZADD", "throttle:{fleet}:nodes", time.Now().Add(time.Hour).UnixMicro(), "by hand")
	require.Empty(t, budget(t, snapshot(t, all), "shop").Runbook)
}

// TestRunbooksLeaveRoom: a record with more addresses than it has room for keeps its budgets.
func TestRunbooksLeaveRoom(t *testing.T) {
	client := redistest.Single(t).Client(t)
	reporter := start(t, client, "program")
	runbooks := make(map[string]string)
	for i := range 250 {
		name := fmt.Sprintf("policy %d", i)
		runbooks[name] = "https://wiki.example.com/" + strings.Repeat("x", 250)
		acquire(t, limiter(t, reporter, throttle.Policy{Name: name, Limit: store.PerHour(5)}), "")
	}
	reporter.ReportFile(func() fleet.FileState { return fleet.FileState{Runbooks: runbooks} })
	reporter.Report()
	require.NoError(t, reporter.Err())
	require.Len(t, snapshot(t, must(fleet.New(client, fleet.Options{}))).Budgets, 128)
}

// TestP9_TheServerOfTheFleetTellsTheTime: in a cluster, whose servers have clocks of their own, the server that has the reports tells the time.
func TestP9_TheServerOfTheFleetTellsTheTime(t *testing.T) {
	servers := redistest.Cluster(t)
	f := must(fleet.New(servers.Client(t), fleet.Options{}))
	for range 20 {
		_, err := f.Nodes(t.Context())
		require.NoError(t, err)
	}

	asked := 0
	for _, addr := range servers.Addrs {
		server := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = server.Close() })
		if strings.Contains(server.Info(t.Context(), "commandstats").Val(), "cmdstat_time:") {
			asked++
		}
	}
	require.Equal(t, 1, asked)
}
