package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/outage"
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
	act := append(scriptsIn(t, "fleet/*note.lua", "fleet/push.lua", "fleet/act.lua", "fleet/log.lua", "fleet/off.lua"), lua.PauseScript, lua.SlotsPauseScript, lua.SetUsedScript)
	beat := scriptsIn(t, "fleet/beat.lua")
	require.Len(t, fleet, len(beat)+6, "a script of package fleet that no user runs")
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
			all = append(all, lua.FromSource(string(text)))
		}
	}
	return all
}

// commandsOf returns what a script calls, and fails for a call whose command cannot be read
// from its line.
func commandsOf(t *testing.T, s lua.Script) (all []string) {
	for i, line := range strings.Split(s.Source(), "\n") {
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

// everything does all that a store can do, in two stores of a user with those
// rights. It returns the first error.
func everything(t *testing.T, server *redistest.Server, rights []string) error {
	t.Helper()
	admin := server.Client(t)
	do(t, admin, "FLUSHALL")
	do(t, admin, "SCRIPT", "FLUSH")
	o := server.User(t, "throttle", rights)
	ctx := forAtMost(t, inTheEnd)
	var stores []*redisstore.Store
	for range 2 {
		client := clientOf(t, o)
		stores = append(stores, redisstore.New(client, redisstore.Options{}))
	}
	for _, s := range stores {
		for _, policy := range []throttle.Policy{
			{Name: "window", Limit: store.PerHour(128)},
			{Name: "bucket", Limit: store.TokenBucket(100, time.Second, 200)},
			{Name: "flight", Limit: store.Concurrency(2)},
		} {
			if err := exercise(ctx, s, policy); err != nil {
				return err
			}
		}
	}
	return nil
}

// exercise does with one policy what can be done.
func exercise(ctx context.Context, s store.Store, policy throttle.Policy) error {
	l, err := throttle.NewLimiter(s, policy)
	if err != nil {
		return err
	}
	for i := range 50 { // of two stores: twice as many as make a row long
		p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
		if err != nil {
			return err
		}
		if i < 10 {
			if err := p.Tell(ctx, throttle.Answer{}.WithCost(2)); err != nil {
				return err
			}
		}
		p.Release()
	}
	if err := l.Pause(ctx, "", 10*time.Millisecond); err != nil {
		return err
	}
	if _, err := l.Status(ctx, ""); err != nil {
		return err
	}
	p, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
	if err != nil {
		return err
	}
	p.Release()
	return nil
}

// TestRights: the line suffices. Without one of its rights nothing works, and the
// error says which is missing; or, where the fleet only hears of things later,
// everything does.
func TestRights(t *testing.T) {
	t.Parallel()
	rights := redistest.Rights(t, rightsPage, "throttle")
	server := redistest.Single(t)
	require.NoError(t, everything(t, server, rights))
	quiet := []string{"+publish", "+subscribe", "+ping", "&throttle:*"}
	for i, right := range rights {
		t.Run(right, func(t *testing.T) {
			err := everything(t, server, slices.Delete(slices.Clone(rights), i, i+1))
			switch {
			case slices.Contains(quiet, right):
				require.NoError(t, err)
			case right == "~throttle:*":
				require.ErrorContains(t, err, "(it needs ~NAMESPACE:*)")
			default:
				require.Error(t, err, "a right that nothing needs")
				require.Regexp(t, `'`+right[1:]+`'|it needs \`+right+`, as docs/run/redis.md says`, err.Error())
				require.NotContains(t, err.Error(), redistest.Password)
			}
		})
	}
}

// TestRights_AMissingRightIsFinal: callers that share a call have its error, after no other
// call, because the script may have done what comes before the command that it was denied. When
// the right is given, the next call works.
func TestRights_AMissingRightIsFinal(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rights := redistest.Rights(t, rightsPage, "throttle")
	o := server.User(t, "throttle", rights)
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(t, o)
		s := atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		c := charge("window", store.PerHour(100))
		book(t, s, c) // from now on the server knows the script
		tap := newTap(client, isScript)
		server.User(t, "throttle", slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return right == "+setrange" }))
		var all []**outcome // the first is on its way, the others queue behind it
		for range 11 {
			all = append(all, bookAside(t.Context(), s, booking(c)))
		}
		require.Equal(t, []string{"evalsha"}, tap.names())
		tap.open()
		for _, got := range all {
			require.Regexp(t, `'setrange'|it needs \+setrange`, (*got).err.Error())
		}
		require.Equal(t, []string{"evalsha"}, tap.names())
		server.User(t, "throttle", rights)
		book(t, s, c)
	})
}

// TestRights_HalfAScript: a right is missing for a while, and scripts do what comes before the
// command that they are denied. Then all works again, and the limit has held.
func TestRights_HalfAScript(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	rights := redistest.Rights(t, rightsPage, "throttle")
	o := server.User(t, "throttle", rights)
	for i, right := range rights {
		synctest.Test(t, func(t *testing.T) {
			s := atRest(t, redisstore.NewAt(clientOf(t, o), redisstore.Options{}, bubbleClock))
			c := charge("window of "+right, store.PerHour(100))
			starts := 0
			start := func() error {
				time.Sleep(time.Millisecond)
				g, err := s.Book(t.Context(), bookingFor(0, c))
				if err == nil && g.OK && g.Wait == 0 {
					starts++
				}
				return err
			}
			for range 40 {
				require.NoError(t, start())
			}
			server.User(t, "throttle", slices.Delete(slices.Clone(rights), i, i+1))
			for range 20 {
				_ = start()
			}
			server.User(t, "throttle", rights)
			for range 80 {
				require.NoError(t, start(), right)
			}
			require.LessOrEqual(t, starts, 100, right)
			st := status(t, s, c)
			require.GreaterOrEqual(t, st.Used, starts, right)
			require.LessOrEqual(t, st.Used, 100, right)
			left := server.Client(t).PTTL(t.Context(), s.Key(c.Budget)).Val()
			require.Positive(t, left, "it expires")
			time.Sleep(2 * time.Hour)
			require.NoError(t, start())
		})
	}
}

// instead starts something that is not Redis.
func instead(t *testing.T, serve func(net.Conn)) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestTheWrongServer: whatever is asked in Redis' place, the error says where that
// is and what it said, and keeps the password to itself.
func TestTheWrongServer(t *testing.T) {
	t.Parallel() // its servers are its own
	const secret = "sesame-52"
	server := redistest.Single(t)
	do(t, server.Client(t), "CONFIG", "SET", "requirepass", secret)
	http := instead(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}
	})
	echo := instead(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	sentinel := redistest.Sentinel(t).Sentinel.Addr
	for _, try := range []struct {
		name string
		o    redis.Options
		want string
	}{
		{"no password", redis.Options{Addr: server.Addr}, server.Addr + ": NOAUTH Authentication required."},
		{"wrong password", redis.Options{Addr: server.Addr, Password: secret + "x"}, server.Addr + ": WRONGPASS "},
		{"wrong database", redis.Options{Addr: server.Addr, Password: secret, DB: 99}, server.Addr + ": ERR DB index is out of range"},
		{"HTTP", redis.Options{Addr: http, Password: secret}, http + `: redis: can't parse map reply: "HTTP/1.1 400 Bad Request"`},
		{"echo", redis.Options{Addr: echo, Password: secret}, echo + ": "},
		{"a Sentinel", redis.Options{Addr: sentinel}, sentinel + ": ERR unknown command 'evalsha'"},
		{"nobody", redis.Options{Addr: "127.0.0.1:1", Password: secret}, "dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(try.name, func(t *testing.T) {
			client := clientOf(t, &try.o)
			k := bookingFor(1500*time.Millisecond, hourly)
			saysWhy(t, try.want, func() error {
				_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), k)
				require.ErrorContains(t, err, "redisstore: ")
				require.NotContains(t, err.Error(), secret)
				return err
			})
		})
	}
	t.Run("no password, and a call that is long", func(t *testing.T) {
		_, err := redisstore.New(clientOf(t, &redis.Options{Addr: server.Addr}), redisstore.Options{}).Book(t.Context(), manyRows())
		require.ErrorContains(t, err, "NOAUTH Authentication required (set Username and Password of the client): ERR Protocol error: unauthenticated ")
		require.Equal(t, outage.Denied, outage.CauseOf(err), "as if the server had said NOAUTH")
	})
	t.Run("a Sentinel that knows no such master", func(t *testing.T) {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "other", SentinelAddrs: []string{sentinel}, Password: secret})
		defer client.Close()
		_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "(no Sentinel knows a master of that name)")
	})
	t.Run("no cluster", func(t *testing.T) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, Password: secret})
		defer client.Close()
		_, err := redisstore.New(client, redisstore.Options{}).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "ERR This instance has cluster support disabled")
	})
}

// manyRows is a booking under a table of six rows, whose call has more arguments than a server takes from
// a client that has not given its password.
func manyRows() *store.Booking {
	var charges []store.Charge
	for i := range 6 {
		c := hourly
		c.Budget.Key[0] = byte(i)
		charges = append(charges, c)
	}
	return booking(charges...)
}

// TestCauses: a failure is of one of three kinds.
func TestCauses(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	policy := throttle.Policy{Name: "p", Limit: store.PerSecond(9)}
	for _, c := range []struct {
		name  string
		cause outage.Cause
		when  func(o *redis.Options)
	}{
		{"wrong password", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "right", "reset", "on", ">right", "~*", "&*", "+@all")
			o.Username, o.Password = "right", "wrong"
		}},
		{"no such user", outage.Denied, func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong" }},
		{"no scripts", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "weak", "reset", "on", ">weak", "~*", "&*", "+@all", "-evalsha")
			o.Username, o.Password = "weak", "weak"
		}},
		{"no command of a script", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "weaker", "reset", "on", ">weak", "~*", "&*", "+@all", "-time")
			o.Username, o.Password = "weaker", "weak"
		}},
		{"another's key", outage.Failed, func(o *redis.Options) {
			o.DB = 3
			client := clientOf(t, o)
			_, err := limiter(t, redisstore.New(client, redisstore.Options{}), policy).Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
			require.NoError(t, err)
			keys, err := client.Keys(t.Context(), "*:p:*").Result()
			require.NoError(t, err)
			require.Len(t, keys, 1)
			do(t, client, "DEL", keys[0])
			do(t, client, "LPUSH", keys[0], "x")
		}},
		{"nobody there", outage.Away, func(o *redis.Options) { o.Addr = "127.0.0.1:1" }},
	} {
		o := server.Options()
		c.when(o)
		l := limiter(t, redisstore.New(clientOf(t, o), redisstore.Options{}), policy)
		maxWait := throttle.Forever
		if c.cause == outage.Away {
			maxWait = soon
		}
		_, err := l.Acquire(throttle.WithMaxWait(forAtMost(t, inTheEnd), maxWait), "", 1)
		require.Error(t, err, c.name)
		require.Equal(t, c.cause, outage.CauseOf(err), "%s: %v", c.name, err)
	}
}

// TestAProxyThatReadsScripts: all works behind a proxy that takes a script only if each key stands there
// as KEYS[…], as those of Alibaba Cloud do.
func TestAProxyThatReadsScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	call, keyed := regexp.MustCompile(`redis\.p?call\('([A-Z]+)', ([^\n]*)`), regexp.MustCompile(`^KEYS\[[^\]]+\][,)]`)
	refused := atomic.Int64{}
	reads := middle(func(cmd redis.Cmder, next func() error) error {
		for _, m := range call.FindAllStringSubmatch(cmd.Args()[1].(string), -1) {
			if m[1] != "PUBLISH" && !keyed.MatchString(m[2]) {
				refused.Add(1)
				return failing(cmd, said("ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array"))
			}
		}
		return next()
	})
	for range 2 {
		client := server.Client(t)
		client.AddHook(reads)
		s := redisstore.New(client, redisstore.Options{HashTags: true})
		for _, policy := range []throttle.Policy{
			{Name: "window", Limit: store.PerHour(128)},
			{Name: "bucket", Limit: store.TokenBucket(100, time.Second, 200)},
			{Name: "flight", Limit: store.Concurrency(2)},
		} {
			require.NoError(t, exercise(forAtMost(t, inTheEnd), s, policy))
		}
	}
	require.Equal(t, int64(2), refused.Load(), "once for each client")
}
