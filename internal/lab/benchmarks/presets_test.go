package benchmarks

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/redisstore"
)

var fleetLoad = flag.Duration("fleetload", 2*time.Second, "how long each run of Sizing is")

// tables are throttle with one policy, and with a provider's table.
var tables = []peer{
	{"throttle", openThrottle},
	{"dingtalk", openDingTalk},
}

// openDingTalk is DingTalk's table by its preset, for a call that two rows with a number
// and four without one are about. Both numbers are the limit.
func openDingTalk(c *redis.Client, l limit) (ask, error) {
	account := dingtalk.Options{IPLimit: l.N * 20, Edition: dingtalk.Edition{PerSecond: l.N}}
	ls, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: redisstore.New(c, redisstore.Options{}), Policies: throttle.WithoutAnswers(dingtalk.Policies(account))})
	if err != nil {
		return nil, err
	}
	call, err := http.NewRequest(http.MethodPost, "https://oapi.dingtalk.com/topapi/v2/department/listsub", nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ string) (time.Duration, error) {
		_, err := ls.AcquireRequest(call.WithContext(ctx))
		return 0, err
	}, nil
}

// BenchmarkPreset is a start that has room, under a provider's table and under one policy.
func BenchmarkPreset(b *testing.B) {
	for _, shape := range []struct{ processes, workers int }{{1, 1}, {4, 64}} {
		b.Run(fmt.Sprintf("%dx%d", shape.processes, shape.workers), func(b *testing.B) {
			tallies := takeTurns(b, tables, shape.processes, order{
				Workers: shape.workers, Limit: limit{plentyShared, time.Second},
			})
			for i, p := range tables {
				b.Run(p.name, func(b *testing.B) { tallies[i].report(b, tables[0].name, &tallies[0]) })
			}
		})
	}
}

// A fleet as it is in production: many programs with a few callers each.
const (
	manyPrograms = 60
	fewCallers   = 4
)

// BenchmarkSizing is what such a fleet costs Redis: while there is room, and while all
// wait for 40 calls in a second.
func BenchmarkSizing(b *testing.B) {
	for _, shape := range []struct {
		name  string
		limit int
	}{{"room", plentyShared}, {"40-per-s", 40}} {
		b.Run(shape.name, func(b *testing.B) {
			for _, p := range tables {
				b.Run(p.name, func(b *testing.B) {
					s := newServer(b)
					before := s.read(b)
					o := order{Peer: p.name, Redis: s.URL(), Workers: fewCallers, Limit: limit{shape.limit, time.Second}, Patience: time.Minute}
					c := newCrew(b, manyPrograms)
					o.Load = *fleetLoad / 4
					do(b, c, o) // opens connections and loads scripts
					begun := s.read(b)
					o.Load = *fleetLoad
					d := do(b, c, o)
					end := s.read(b)
					reportSizing(b, d, end.since(begun), end.since(before))
				})
			}
		})
	}
}

// reportSizing reports what a fleet used while it called, and what it holds.
func reportSizing(b *testing.B, d done, used, held meter) {
	b.Helper()
	calls := float64(d.Calls)
	require.Positive(b, d.Calls, "premise: starts were taken")
	require.GreaterOrEqual(b, held.clients, float64(manyPrograms), "premise: all programs are connected")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(calls/d.Took.Seconds(), "acquires/s")
	b.ReportMetric(100*used.cpu/float64(d.Took.Microseconds()), "redis-cpu-%")
	b.ReportMetric(used.cpu/calls, "redis-us/acquire")
	b.ReportMetric(float64(d.Trips)/calls, "trips/acquire")
	b.ReportMetric(used.commands/calls, "commands/acquire")
	b.ReportMetric(used.messages/calls, "messages/acquire")
	b.ReportMetric(used.bytes/calls, "bytes/acquire")
	b.ReportMetric(held.clients, "connections")
	b.ReportMetric(held.memory/1024, "memory-KB")
}
