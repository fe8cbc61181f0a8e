package promthrottle_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// fleetTable has a limit that binds, one that only counts, and one that the upstream closes.
var fleetTable = []throttle.Policy{
	{Name: "calls", Match: "example.com/calls", Limit: throttle.PerSecond(20)},
	{Name: "trial", Match: "example.com/calls", Limit: throttle.PerSecond(5), Shadow: true},
	{Name: "closed", Match: "example.com/closed", Limit: throttle.PerSecond(10)},
}

// memberOf is the variable of the environment that makes the test binary a member of a fleet.
const memberOf = "PROMTHROTTLE_MEMBER_OF"

func TestMain(m *testing.M) {
	if address := os.Getenv(memberOf); address != "" {
		if err := member(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// An upstream answers after 5 ms; under /closed it refuses for ten minutes.
type upstream struct{}

func (upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: req}
	if strings.HasPrefix(req.URL.Path, "/closed") {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "600")
	}
	return resp, nil
}

// member is a program of the fleet: it says where its metrics are, sends, and sends to each path
// that it reads, too. It ends with its standard input.
func member(address string) error {
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	metrics := promthrottle.New()
	transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: redisstore.New(client, redisstore.Options{}), Policies: fleetTable, Base: upstream{}, Observe: metrics.Observe})
	if err != nil {
		return err
	}
	metrics.Follow(transport)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, promthrottle.Budgets(transport))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})) }()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	send := func(path string) {
		for ctx.Err() == nil {
			if req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/"+path, nil); err == nil {
				_, _ = transport.RoundTrip(req) // what becomes of it is counted
			}
		}
	}
	for range 4 {
		go send("calls")
	}
	fmt.Println(listener.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		go send(lines.Text())
	}
	return lines.Err()
}

// startMember starts a program of the fleet, and returns where its metrics are, and what it reads.
func startMember(t *testing.T, redis string) (target string, paths io.Writer) {
	t.Helper()
	c := exec.Command(os.Args[0])
	var log bytes.Buffer
	c.Env, c.Stderr = append(os.Environ(), memberOf+"="+redis), &log
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil || t.Failed() {
			t.Log(err, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line), in
}

// TestFleet: a real Prometheus scrapes a fleet of three programs that share a real Redis. The
// dashboard shows what they do, and the alerts notice.
func TestFleet(t *testing.T) {
	soak.Only(t)
	store := redistest.Single(t)
	var targets []string
	var paths []io.Writer
	for range 3 {
		target, path := startMember(t, store.Addr)
		targets, paths = append(targets, target), append(paths, path)
	}
	s := startPrometheus(t, targets)

	s.await("all are scraped", func() bool { _, up := s.query("sum(up)"); return up == 3 })
	s.await("the fleet keeps its limit, and uses it", func() bool {
		_, rate := s.query(`sum(rate(throttle_requests_total{policy=~"calls|none", result="started"}[10s]))`)
		return rate > 18 && rate <= 20
	})
	require.False(t, s.pending("ThrottlePenaltyOpen"))
	for _, path := range paths {
		_, err := fmt.Fprintln(path, "closed")
		require.NoError(t, err)
	}
	for what, expr := range map[string]string{
		"the limit is used up":            `max(throttle_budget_used{policy="calls"} / throttle_budget_limit{policy="calls"}) > 0.95`,
		"requests wait":                   `max(throttle_budget_waiting{policy="calls"}) > 3`,
		"one program has met the penalty": `sum(throttle_events_total{kind="penalized", policy="closed"}) >= 1`,
		"all know of it":                  `min(throttle_budget_paused_seconds{policy="closed"}) > 500`,
		"the trial would have held":       `sum(rate(throttle_events_total{kind="shadowed", policy="trial"}[10s])) > 1`,
		"half of all waited for long":     `histogram_quantile(0.5, sum by (le) (rate(throttle_wait_seconds_bucket{policy="calls"}[10s]))) > 0.1`,
	} {
		s.await(what, func() bool { n, _ := s.query(expr); return n > 0 })
	}
	for _, alert := range []string{"ThrottlePenaltyOpen", "ThrottleUsedUp", "ThrottleShadowWouldHold"} {
		s.await(alert, func() bool { return s.pending(alert) })
	}
	require.False(t, s.pending("ThrottleStoreAway"))
	require.False(t, s.pending("ThrottleLimitTooHigh"))

	for what, expr := range expressions(t) {
		s.await(what, func() bool {
			n, _ := s.query(expr)
			return n > 0 || what == "Learned ceiling" // of an adaptive policy
		})
	}
	store.Stop()
	// The alert itself fires after a minute: promtool has that in alerts.test.yaml.
	away := func() bool {
		n, _ := s.query("max(throttle_store_away_seconds) > 0 or min(throttle_store_up) == 0")
		return n > 0
	}
	s.await("the store is away", away)
	store.Restart()
	s.await("the store is back", func() bool { return !away() })
}

// TestAlertsFire: alerts fire when they are to, and not before.
func TestAlertsFire(t *testing.T) {
	soak.Only(t)
	promtool(t, "check", "rules", "alerts.yaml")
	promtool(t, "test", "rules", "alerts.test.yaml", "alerts.recorded.yaml")
}

// expressions returns those of the dashboard's panels, by title. Package promql parses them.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	variables := strings.NewReplacer("$policy", ".+", "$__rate_interval", "1m")
	all := make(map[string]string)
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = variables.Replace(target.Expr)
		}
	}
	return all
}
