package promthrottle_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// record has TestRecordedRuns write its runs, in place of comparing them with those of the file.
var record = flag.Bool("record", false, "write alerts.recorded.yaml")

// A recordedRun is a program that uses a real Redis to which something happens after two minutes
// of virtual time, and is over after so long.
type recordedRun struct {
	name    string
	program func(ctx context.Context, send func(context.Context) error)
	begin   func(*testing.T, *redistest.Server)
	over    func(*testing.T, *redistest.Server)
	after   time.Duration

	alert  string
	firing string // what it says
	fires  string // when it does, by the time of the run; "": never
	ends   string
}

const (
	scrapeEvery = 15 * time.Second
	wholeRun    = 18 * time.Minute
	begins      = 2*time.Minute + time.Second

	runbook = "https://github.com/fleetthrottle/throttle/blob/main/docs/run/alerts.md#"

	isAway = "exp_labels: {severity: critical}, exp_annotations: {summary: 'The store does not answer: requests wait.', runbook_url: '" + runbook + "throttlestoreaway'}"
	denies = "exp_labels: {severity: critical, cause: denied}, " +
		"exp_annotations: {summary: 'The store answers that it does not do what it is asked (denied): requests are refused.', runbook_url: '" + runbook + "throttlestorerefuses'}"
)

var recordedRuns = []recordedRun{
	{
		name: "Redis is stopped for ten minutes, and one caller after the other waits", program: patient,
		begin: stop, over: restart, after: 10 * time.Minute,
		alert: "ThrottleStoreAway", firing: isAway, fires: "3m15s", ends: "12m15s",
	}, {
		name: "Redis is stopped for ten minutes, and callers leave after half a second", program: impatient,
		begin: stop, over: restart, after: 10 * time.Minute,
		alert: "ThrottleStoreAway", firing: isAway, fires: "3m15s", ends: "12m15s",
	}, {
		name: "Redis can be read and not written for ten minutes, and callers wait", program: patient,
		begin: command("CONFIG", "SET", "min-replicas-to-write", "1"), over: command("CONFIG", "SET", "min-replicas-to-write", "0"), after: 10 * time.Minute,
		alert: "ThrottleStoreAway", firing: isAway, fires: "3m15s", ends: "12m15s",
	}, {
		name: "Redis is stopped for twenty seconds, and nobody asks after the first caller",
		program: func(ctx context.Context, send func(context.Context) error) {
			time.Sleep(begins + time.Second)
			impatiently(ctx, send)
		},
		begin: stop, over: restart, after: 20 * time.Second,
		alert: "ThrottleStoreAway",
	}, {
		name: "a right is missing for ten minutes", program: patient,
		begin: command("ACL", "SETUSER", "default", "-evalsha"), over: command("ACL", "SETUSER", "default", "+evalsha"), after: 10 * time.Minute,
		alert: "ThrottleStoreRefuses", firing: denies, fires: "2m15s", ends: "17m",
	},
}

func stop(_ *testing.T, s *redistest.Server)    { s.Kill() }
func restart(_ *testing.T, s *redistest.Server) { s.Restart() }

// command has an operator send a command.
func command(words ...any) func(*testing.T, *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		client := redis.NewClient(s.Options())
		defer client.Close()
		require.NoError(t, client.Do(context.Background(), words...).Err())
	}
}

// beside keeps requests away from the moments of scrapes.
const beside = 300 * time.Millisecond

// patient sends a request every seven seconds, and waits for each.
func patient(ctx context.Context, send func(context.Context) error) {
	for time.Sleep(beside); ctx.Err() == nil; time.Sleep(7 * time.Second) {
		_ = send(ctx)
	}
}

// impatient sends a request every seven seconds, and waits for half a second.
func impatient(ctx context.Context, send func(context.Context) error) {
	time.Sleep(beside)
	for ticker := time.NewTicker(7 * time.Second); ctx.Err() == nil; <-ticker.C {
		impatiently(ctx, send)
	}
}

func impatiently(ctx context.Context, send func(context.Context) error) {
	ctx, stop := context.WithTimeout(ctx, time.Second/2)
	defer stop()
	_ = send(ctx)
}

// TestRecordedRuns: alerts.recorded.yaml, by which promtool sees alerts fire and end, has what a
// real Redis makes of the metrics.
func TestRecordedRuns(t *testing.T) {
	text := "# What TestRecordedRuns records with -record: a program's metrics, scraped every 15 s, while something\n" +
		"# happens to its Redis from the second minute on.\n" +
		"rule_files: [alerts.yaml]\nevaluation_interval: 15s\ntests:\n"
	for i := range recordedRuns {
		r := &recordedRuns[i]
		t.Run(r.name, func(t *testing.T) { text += r.test(r.scrapes(t)) })
	}
	if *record {
		require.NoError(t, os.WriteFile("alerts.recorded.yaml", []byte(text), 0o600))
	}
	recorded, err := os.ReadFile("alerts.recorded.yaml")
	require.NoError(t, err)
	require.Equal(t, string(recorded), text)
}

// scrapes runs the program, and returns what was scraped of each series, in whole numbers.
func (r *recordedRun) scrapes(t *testing.T) map[string][]float64 {
	server, do, all := redistest.Single(t), outside(t), make(map[string][]float64)
	synctest.Test(t, func(t *testing.T) {
		policies := []throttle.Policy{{Name: "calls", Match: "/", Limit: throttle.PerSecond(100)}}
		m := promthrottle.New()
		transport := throttle.Must(throttle.New(throttle.Config{
			MaxWait: throttle.Forever,
			Store:   redisstore.New(server.Client(t), redisstore.Options{}), Policies: policies, Base: fake{}, Observe: m.Observe,
		}))
		m.Follow(transport)
		ctx, stop := context.WithCancel(t.Context())
		ended, begun := make(chan struct{}), time.Now()
		go func() {
			r.program(ctx, func(ctx context.Context) error { return get(transport, ctx, "") })
			close(ended)
		}()
		time.AfterFunc(begins, func() { do(func() { r.begin(t, server) }) })
		time.AfterFunc(begins+r.after, func() { do(func() { r.over(t, server) }) })
		for at := time.Duration(0); at < wholeRun; at += scrapeEvery {
			time.Sleep(time.Until(begun.Add(at)))
			scrape(t, m, all)
		}
		stop()
		<-ended
		time.Sleep(time.Minute) // the client's own pauses
	})
	return all
}

// outside returns a function that calls others outside of the bubble in which it is called: a
// process that is started inside would keep time from going on.
func outside(t *testing.T) func(func()) {
	calls, done := make(chan func()), make(chan struct{})
	t.Cleanup(func() { close(calls) })
	go func() {
		for call := range calls {
			call()
			done <- struct{}{}
		}
	}()
	return func(call func()) {
		calls <- call
		<-done
	}
}

// scrape adds what is told of the store now.
func scrape(t *testing.T, c prometheus.Collector, all map[string][]float64) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "throttle_store_") {
			continue
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf("{%s=%q}", l.GetName(), l.GetValue())
			}
			all[name] = append(all[name], math.Round(m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
}

// test is the run as promtool reads it: the alert fires at its time and not just before, until it
// ends.
func (r *recordedRun) test(all map[string][]float64) string {
	text := "  - name: " + r.name + "\n    interval: 15s\n    input_series:\n"
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text += fmt.Sprintf("      - {series: '%s', values: '%s'}\n", name, values(all[name]))
	}
	text += "    alert_rule_test:\n"
	at := func(when string, exp string) {
		text += fmt.Sprintf("      - {eval_time: %s, alertname: %s, exp_alerts: [%s]}\n", when, r.alert, exp)
	}
	if r.fires == "" {
		for _, when := range []string{"2m15s", "3m30s", "5m"} {
			at(when, "")
		}
		return text
	}
	fires, _ := time.ParseDuration(r.fires)
	ends, _ := time.ParseDuration(r.ends)
	firing := "{" + r.firing + "}"
	at(brief(fires-scrapeEvery), "")
	at(r.fires, firing)
	at(brief(ends-scrapeEvery), firing)
	at(r.ends, "")
	return text
}

// values is how promtool writes the values of a series: equal ones together.
func values(all []float64) string {
	var text []string
	for i := 0; i < len(all); {
		n := i
		for n < len(all) && all[n] == all[i] {
			n++
		}
		text = append(text, fmt.Sprintf("%vx%d", all[i], n-i-1))
		i = n
	}
	return strings.ReplaceAll(strings.Join(text, " "), "x0", "")
}

// brief is how promtool writes a time.
func brief(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }
