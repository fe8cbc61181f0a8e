package redisstore_test

import (
	"errors"
	"fmt"
	"net/http"
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
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	steering "github.com/fleetthrottle/throttle/redisstore/fleet"
)

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
		_, err := redisstore.New(client, nil).Book(t.Context(), booking(hourly))
		require.ErrorContains(t, err, "'"+right+"' command (docs/redis.md lists the rights that it needs)")
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
	briefly := func(resp *http.Response) time.Duration {
		if resp.StatusCode == http.StatusTooManyRequests {
			return 20 * time.Millisecond
		}
		return 0
	}
	policies := []throttle.Policy{
		{Name: "all", Match: "example.com/", Limit: throttle.Unlimited(), Penalty: briefly},
		{Name: "line", Match: "example.com/line", Limit: throttle.SlidingWindow(5, 50*time.Millisecond)},
		{Name: "long", Match: "example.com/long", Limit: throttle.PerHour(120), Settle: func(*http.Response) int { return 1 },
			Quota: func(*http.Response) (throttle.Quota, bool) { return throttle.Quota{Left: 100, Reset: time.Hour}, true }},
		{Name: "bucket", Match: "example.com/bucket", Limit: throttle.TokenBucket(100, time.Second, 3), Settle: func(*http.Response) int { return 2 }},
		{Name: "refused", Match: "example.com/refused", Limit: throttle.PerSecond(50), Adaptive: true, Penalty: briefly},
		{Name: "flight", Match: "example.com/flight", Limit: throttle.Concurrency(1)},
	}
	o := &redisstore.Options{Namespace: d.namespace, HashTags: d.namespace != ""}
	var nodes []*steering.Reporter
	var all sync.WaitGroup
	for range 2 {
		client := d.client(t, "reporter")
		node := steering.Start(client, redisstore.New(client, o), &steering.ReporterOptions{Namespace: d.namespace})
		t.Cleanup(node.Close)
		nodes = append(nodes, node)
		transport, err := throttle.New(throttle.Config{Store: node, Policies: policies, Base: upstream})
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
	startNow(t, plain, 60, charge("plain", throttle.PerHour(120)))
	d.steer(t, nodes)
	for _, node := range nodes {
		node.Close()
	}
}

// steer does what operators do, and who only looks.
func (d *deployment) steer(t *testing.T, nodes []*steering.Reporter) {
	o := &steering.Options{Namespace: d.namespace, HashTags: d.namespace != ""}
	ctx, operator, watcher := forAtMost(t, inTheEnd), steering.New(d.client(t, "operator"), o), steering.New(d.client(t, "watcher"), o)
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
