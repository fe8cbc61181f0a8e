package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	steering "github.com/fleetthrottle/throttle/redisstore/fleet"
	lua "github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// rightsPage has a line of rights for each kind of user.
const rightsPage = "../docs/run/redis.md"

// A user is what its clients ask of Redis: the commands that they send by themselves, and
// the scripts that they run.
type user struct {
	sends   string
	scripts []lua.Script
	reads   bool   // it may run of its scripts only what writes and publishes nothing
	rest    string // what else its line says
}

// usersOfThePage returns them by name.
func usersOfThePage(t *testing.T) map[string]user {
	const run, look = "evalsha eval ping ", "time mget zrange hgetall hmget lrange "
	const all, none = "~throttle:* &throttle:*", "~throttle:* resetchannels"
	store, fleet := scriptsIn(t, "internal/wire/lua/*.lua"), scriptsIn(t, "fleet/*.lua")
	describe := []lua.Script{lua.StatusScript, lua.SlotsStatusScript}
	act := append(scriptsIn(t, "fleet/*note.lua", "fleet/push.lua", "fleet/act.lua", "fleet/off.lua"), lua.PauseScript, lua.SlotsPauseScript, lua.SetUsedScript)
	beat := scriptsIn(t, "fleet/beat.lua")
	require.Len(t, fleet, len(beat)+5, "a script of package fleet that no user runs")
	return map[string]user{
		"throttle": {run + "publish subscribe", store, false, all},
		"reporter": {run + "publish subscribe hmget", slices.Concat(store, beat), false, all},
		"watcher":  {"evalsha ping " + look, describe, true, none},
		"operator": {run + look, slices.Concat(describe, act), false, all},
	}
}

// scriptsIn returns the files that match as scripts.
func scriptsIn(t *testing.T, patterns ...string) (all []lua.Script) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all = append(all, lua.Script{Source: string(text)})
		}
	}
	return all
}

// commandsOf returns what a script calls, and fails for a call whose command cannot be read
// from its line.
func commandsOf(t *testing.T, s lua.Script) (all []string) {
	for i, line := range strings.Split(s.Source, "\n") {
		command := s.CalledAt(i + 1)
		calls := strings.Count(line, "redis.call") + strings.Count(line, "redis.pcall")
		require.Equal(t, command != "", calls == 1, line)
		require.LessOrEqual(t, calls, 1, line)
		if command != "" {
			all = append(all, strings.ToLower(command))
		}
	}
	return all
}

// TestRights_AreWhatIsCalled: each line of the page has the rights to what its user's clients
// send and what their scripts call, no more and no fewer.
func TestRights_AreWhatIsCalled(t *testing.T) {
	t.Parallel()
	known, err := redistest.Shared(t).Client(t).Command(t.Context()).Result()
	require.NoError(t, err)
	writes := func(command string) bool {
		flags := known[command].Flags
		return slices.Contains(flags, "write") || slices.Contains(flags, "pubsub")
	}
	for name, u := range usersOfThePage(t) {
		want := strings.Fields(u.sends)
		for _, s := range u.scripts {
			want = append(want, slices.DeleteFunc(commandsOf(t, s), func(c string) bool { return u.reads && writes(c) })...)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for i := range want {
			want[i] = "+" + want[i]
		}
		require.ElementsMatch(t, append(want, strings.Fields(u.rest)...), redistest.Rights(t, rightsPage, name), name)
	}
}

// TestRights_AWatcherBringsNoScript: who only looks can run the scripts that programs brought, and can send none, such as one that
// keeps the server for ever. Until the next booking or report after a server's start the state of a budget is not known.
func TestRights_AWatcherBringsNoScript(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	user := func(name string) *redis.Client {
		return clientOf(t, server.User(t, name, redistest.Rights(t, rightsPage, name)))
	}
	client, program, reporter := user("watcher"), user("throttle"), user("reporter")
	budgets := []store.Charge{charge("window", hourly.Limit), charge("flight", store.Concurrency(9))}
	store := redisstore.New(program, redisstore.Options{})
	state := func() (err error) {
		for _, c := range budgets {
			_, wrong := redisstore.New(client, redisstore.Options{}).Status(t.Context(), c)
			err = errors.Join(err, wrong)
		}
		return err
	}
	for _, bring := range []func(){
		func() { startNow(t, store, 1, budgets...) },
		func() { startNow(t, store, 1, budgets...) }, // the server was looked at just now
		func() {
			a := must(steering.Start(reporter, redisstore.New(reporter, redisstore.Options{}), steering.ReporterOptions{}))
			require.Eventually(t, func() bool { return a.Err() == nil }, inTheEnd, time.Millisecond)
			a.Close()
		},
	} {
		do(t, server.Client(t), "SCRIPT", "FLUSH")
		err := state()
		require.ErrorContains(t, err, "does not know yet how to describe a budget")
		require.False(t, steering.Denied(err), "the other budgets are told")
		bring()
		require.NoError(t, state())
	}

	for _, words := range [][]any{
		{"EVAL", "while true do end", 0}, {"EVAL_RO", "while true do end", 0}, {"SCRIPT", "LOAD", "while true do end"},
		{"FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('f', function() while true do end end)"}, {"FCALL", "f", 0},
	} {
		require.ErrorContains(t, client.Do(t.Context(), words...).Err(), "NOPERM", words)
	}
}

// rightsBeside returns the rights that the table of the page adds where the text in its second column
// says so.
func rightsBeside(t *testing.T, where string) []string {
	text, err := os.ReadFile(rightsPage)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.ReplaceAll(line, `\|`, "¦"), "|"); len(cells) == 4 && strings.Contains(cells[2], where) {
			return strings.Fields(strings.ReplaceAll(strings.Trim(cells[1], " `"), "¦", "|"))
		}
	}
	require.Fail(t, "the page has no such row", where)
	return nil
}

// denials returns what a server has denied since it started, by ACL LOG. Since 7.2 that has
// what go-redis says of itself on each connection, too.
func denials(t *testing.T, admin redis.UniversalClient) (all []string) {
	entries, err := admin.(*redis.Client).ACLLog(t.Context(), 128).Result()
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client|") {
			all = append(all, e.Username+" "+e.Reason+" "+e.Object)
		}
	}
	return all
}

// go-redis prints what all clients of the program meet in one place, which nobody may change while
// clients run.
var prints printer

func init() { redis.SetLogger(&prints) }

// listens returns what go-redis prints of missing rights from now on.
func listens() (printed func() []string) {
	before := len(prints.denied())
	return func() []string { return prints.denied()[before:] }
}

// A printer keeps what go-redis prints of missing rights.
type printer struct {
	mu  sync.Mutex
	all []string
}

// Printf implements the logger of go-redis.
func (p *printer) Printf(_ context.Context, format string, v ...any) {
	if text := fmt.Sprintf(format, v...); strings.Contains(text, "NOPERM") {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all = append(p.all, text)
	}
}

func (p *printer) denied() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// A deployment is servers and how clients with the name of a user reach them.
type deployment struct {
	servers   []*redistest.Server
	dial      func(user, password string) redis.UniversalClient
	more      []string // the rights that each user needs beside its line
	namespace string   // and what it is in the patterns; "": that of the page
	pattern   string
}

// client returns a client of a user of the page, who may do what its line says.
func (d *deployment) client(t *testing.T, user string) redis.UniversalClient {
	rights := append(redistest.Rights(t, rightsPage, user), d.more...)
	for i, right := range rights {
		if d.pattern != "" {
			rights[i] = strings.Replace(right, "throttle:", d.pattern+":", 1)
		}
	}
	for _, s := range d.servers {
		s.User(t, user, rights)
	}
	c := d.dial(user, redistest.Password)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRights_OfAFleet: the users of the page do all that programs and operators do, wherever
// the budgets are. Nothing is denied, and go-redis prints nothing.
func TestRights_OfAFleet(t *testing.T) {
	onServer := func(db int) deployment {
		s := redistest.Single(t)
		return deployment{servers: []*redistest.Server{s}, dial: func(user, password string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: s.Addr, DB: db, Username: user, Password: password})
		}}
	}
	inDatabase, inNamespace, onRing := onServer(3), onServer(0), onServer(0)
	inDatabase.more = rightsBeside(t, "database")
	inNamespace.namespace, inNamespace.pattern = "shop[1]", `shop\[1\]`
	onRing.dial = func(user, password string) redis.UniversalClient {
		return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": onRing.servers[0].Addr}, Username: user, Password: password})
	}
	cluster, watched := redistest.Cluster(t), redistest.Sentinel(t)
	sentinel := watched.Sentinel.User(t, "sentinel", redistest.Rights(t, rightsPage, "sentinel"))
	for name, d := range map[string]deployment{
		"single server": onServer(0), "database": inDatabase, "namespace": inNamespace, "ring": onRing,
		"cluster": {servers: cluster.Servers, dial: func(user, password string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, Username: user, Password: password})
		}, more: rightsBeside(t, "NewClusterClient")},
		"Sentinel": {servers: []*redistest.Server{watched.Master, watched.Replica}, dial: func(user, password string) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: redistest.MasterName, SentinelAddrs: []string{watched.Sentinel.Addr}, Username: user, Password: password,
				SentinelUsername: sentinel.Username, SentinelPassword: sentinel.Password,
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			printed := listens()
			d.live(t)
			require.Empty(t, slices.DeleteFunc(printed(), foundMaster.MatchString))
			for _, s := range append(d.servers, watched.Sentinel) {
				require.Empty(t, denials(t, s.Client(t)))
			}
			for _, user := range []string{"throttle", "reporter", "watcher", "operator"} {
				for _, right := range redistest.Rights(t, rightsPage, user) {
					if command, ok := strings.CutPrefix(right, "+"); ok && command != "ping" { // only where a connection is silent
						require.True(t, d.called(t, command), "a right that nothing needs: %s", right)
					}
				}
			}
		})
	}
}

// foundMaster matches what go-redis prints behind a Sentinel when nothing is wrong.
var foundMaster = regexp.MustCompile(`^sentinel: (selected addr|new master)=`)

// TestRights_OfATopology: without the rights that a database or a cluster needs, the error names
// one, and is final.
func TestRights_OfATopology(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Single(t), redistest.Cluster(t)
	rights := redistest.Rights(t, rightsPage, "throttle")
	o := single.User(t, "throttle", rights)
	o.DB = 3
	for _, s := range cluster.Servers {
		s.User(t, "throttle", rights)
	}
	inCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs, Username: o.Username, Password: o.Password})
	defer inCluster.Close()
	for right, client := range map[string]redis.UniversalClient{"select": clientOf(t, o), "cluster|slots": inCluster} {
		_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "'"+right+"' command (docs/run/redis.md lists the rights that it needs)")
		require.True(t, steering.Denied(err))
	}
}

// called reports whether a server was asked for a command.
func (d *deployment) called(t *testing.T, command string) bool {
	return slices.ContainsFunc(d.servers, func(s *redistest.Server) bool {
		stats, err := s.Client(t).Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		return strings.Contains(stats, "cmdstat_"+command+":")
	})
}

// live lets two programs share budgets of all kinds, and operators see and steer them.
func (d *deployment) live(t *testing.T) {
	var refusals atomic.Int64
	refusals.Store(2)
	upstream := upstreamOf(func(r *http.Request) *http.Response {
		resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}
		if strings.HasPrefix(r.URL.Path, "/refused") && refusals.Add(-1) >= 0 {
			resp.StatusCode = http.StatusTooManyRequests
		}
		return resp
	})
	briefly := func(resp *http.Response) throttle.Answer {
		if resp.StatusCode == http.StatusTooManyRequests {
			return throttle.Refused(20 * time.Millisecond)
		}
		return throttle.Answer{}
	}
	policies := []throttle.Policy{
		{Name: "all", Match: "example.com/", Limit: store.Unlimited(), Answer: briefly},
		{Name: "line", Match: "example.com/line", Limit: store.SlidingWindow(5, 50*time.Millisecond)},
		{Name: "long", Match: "example.com/long", Limit: store.PerHour(120), Answer: func(*http.Response) throttle.Answer {
			return throttle.Answer{}.WithCost(1).WithLeft(store.Quota{Left: 100, Reset: time.Hour})
		}},
		{Name: "bucket", Match: "example.com/bucket", Limit: store.TokenBucket(100, time.Second, 3), Answer: func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(2) }},
		{Name: "refused", Match: "example.com/refused", Limit: store.PerSecond(50), Adaptive: true, Answer: briefly},
		{Name: "flight", Match: "example.com/flight", Limit: store.Concurrency(1)},
	}
	o := redisstore.Options{Namespace: d.namespace, HashTags: d.namespace != ""}
	var nodes []*steering.Reporter
	var all sync.WaitGroup
	for range 2 {
		client := d.client(t, "reporter")
		node := must(steering.Start(client, redisstore.New(client, o), steering.ReporterOptions{Namespace: d.namespace}))
		t.Cleanup(node.Close)
		nodes = append(nodes, node)
		transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: node, Policies: policies, Base: upstream})
		require.NoError(t, err)
		for path, many := range map[string]int{"line": 15, "long": 40, "bucket": 6, "refused": 10, "flight": 6} {
			for range many {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/"+path, nil)
				require.NoError(t, err)
				all.Go(func() {
					resp, err := transport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
			}
		}
	}
	all.Wait()
	plain := redisstore.New(d.client(t, "throttle"), o)
	startNow(t, plain, 60, charge("plain", store.PerHour(120)))
	d.steer(t, nodes)
	for _, node := range nodes {
		node.Close()
	}
}

// steer does what operators do, and who only looks.
func (d *deployment) steer(t *testing.T, nodes []*steering.Reporter) {
	o := steering.Options{Namespace: d.namespace, HashTags: d.namespace != ""}
	ctx, operator, watcher := forAtMost(t, inTheEnd), must(steering.New(d.client(t, "operator"), o)), must(steering.New(d.client(t, "watcher"), o))
	for _, node := range nodes {
		node.ReportSoon()
	}
	for seen := []string(nil); !slices.Contains(seen, "line") || !slices.Contains(seen, "flight"); {
		var err error
		seen, err = watcher.Names(ctx)
		require.NoError(t, err)
	}
	for _, name := range []string{"line", "flight"} {
		target, err := operator.Find(ctx, steering.Query{Name: name})
		require.NoError(t, err)
		require.NoError(t, operator.Pause(ctx, target, time.Minute, "anna", "why"))
		_, _, err = watcher.State(ctx, target)
		require.NoError(t, err)
		snapshot, err := watcher.Snapshot(ctx, 0)
		require.NoError(t, err)
		require.NotEmpty(t, snapshot.Budgets)
		require.NoError(t, operator.Resume(ctx, target, "anna", "why"))
		require.NoError(t, operator.Reset(ctx, target, "anna", "why"))
		if target.CheckUsed(0) == nil {
			_, err = operator.SetUsed(ctx, target, 0, "anna", "why")
			require.NoError(t, err)
		}
	}
	for number := range int64(2) {
		_, err := operator.Push(ctx, number, steering.Pushed{Text: fmt.Append(nil, "file ", number), Generation: "one"}, "push")
		require.NoError(t, err)
	}
	for _, node := range nodes {
		text, err := node.File(ctx)
		require.NoError(t, err)
		require.Equal(t, "file 1", string(text))
		require.NoError(t, node.Err())
	}
	_, errPull := watcher.Pull(ctx)
	_, _, errHistory := watcher.History(ctx)
	_, _, errAudit := watcher.Audit(ctx, 10)
	require.NoError(t, errors.Join(errPull, errHistory, errAudit))
}

// upstreamOf is one whose answers a function makes.
type upstreamOf func(*http.Request) *http.Response

// RoundTrip implements [http.RoundTripper].
func (a upstreamOf) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }
