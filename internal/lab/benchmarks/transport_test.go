package benchmarks

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// BenchmarkTransport is what a request pays on top of its base. The base does
// nothing, so its ratio is the worst there can be: look at the difference, and at the
// ratio to x/time/rate's Wait, which a base would call that waits by itself.
func BenchmarkTransport(b *testing.B) {
	limit := throttle.PerSecond(plenty)
	app := throttle.Policy{Name: "app", Match: "api.example.com/", Limit: limit, Key: throttle.Header("X-App")}
	all := throttle.Policy{Name: "all", Match: "*.example.com/", Limit: limit}
	call := throttle.Policy{
		Name: "call", Match: "GET api.example.com/v1/{what...}", Limit: limit,
		Key: throttle.Join(throttle.Header("X-App"), throttle.RawPath),
	}
	for _, shape := range []struct {
		name     string
		policies []throttle.Policy
		url      string
		charges  int
	}{
		{"nothing-matches", []throttle.Policy{all, app, call}, "https://elsewhere.org/v1/users", 0},
		{"1-policy", []throttle.Policy{all}, "https://api.example.com/v1/users", 1},
		{"3-policies", []throttle.Policy{all, app, call}, "https://api.example.com/v1/users", 3},
	} {
		b.Run(shape.name, func(b *testing.B) {
			base := new(idleBase)
			t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: shape.policies, Base: base})
			require.NoError(b, err)
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, shape.url, nil)
			require.NoError(b, err)
			req.Header.Set("X-App", "app-1")
			require.Len(b, t.Explain(req), shape.charges, "premise: so many policies match")
			wait := locals[0].open()
			sent := 0
			send := func(t http.RoundTripper) func(int) error {
				return func(calls int) error {
					sent += calls
					return together(1, calls, func(int) error { return send(t, req) })
				}
			}
			race(b, localCalls,
				contestant{name: "throttle", run: send(t)},
				contestant{name: "bare", run: send(base)},
				contestant{name: "xtime", run: func(calls int) error {
					return together(1, calls, func(int) error { return wait(b.Context()) })
				}})
			require.Equal(b, sent, base.requests, "premise: every request arrived")
		})
	}
}

func send(t http.RoundTripper, req *http.Request) error {
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// An idleBase answers at once with nothing.
type idleBase struct{ requests int }

func (t *idleBase) RoundTrip(req *http.Request) (*http.Response, error) {
	t.requests++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// dingtalkAnswer is what DingTalk answers to a call that it did not refuse.
const dingtalkAnswer = `{"errcode":0,"errmsg":"ok","result":{"dept_id":1,"name":"x"},"request_id":"15s4ab8ca3cdz"}`

// answerCalls is how many calls with an answer make a round.
const answerCalls = 5_000

// BenchmarkAnswer is a call under DingTalk's table by its preset, whose seven rows look for refusals in
// the body of the answer, beside a call under one policy: one row of that table, which looks at the same
// answer, one policy with a table of codes, and one that looks at the status of the answer only. All
// answers are alike, and all bodies are read to the end.
func BenchmarkAnswer(b *testing.B) {
	limit := throttle.PerSecond(plenty)
	one := throttle.Policy{Name: "one", Match: "*.dingtalk.com/", Limit: limit}
	codes := throttle.Policy{
		Name: "codes", Match: "*.dingtalk.com/", Limit: limit,
		Answer: feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"90018": time.Second}}.Answer,
	}
	preset := dingtalk.Policies(dingtalk.Options{IPLimit: plenty, Edition: dingtalk.Edition{PerSecond: plenty}})

	row := slices.DeleteFunc(slices.Clone(preset), func(p throttle.Policy) bool { return p.Name != "dingtalk-api" })
	require.Len(b, row, 1, "premise: one row")

	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "https://oapi.dingtalk.com/topapi/v2/department/listsub?access_token=t", nil)
	require.NoError(b, err)
	base := answeringBase{http.Header{"Content-Type": {"application/json;charset=UTF-8"}}}
	var contestants []contestant
	for _, c := range []struct {
		name     string
		policies []throttle.Policy
	}{{"dingtalk", preset}, {"row", row}, {"one", []throttle.Policy{one}}, {"codes", []throttle.Policy{codes}}} {
		t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: c.policies, Base: base})
		require.NoError(b, err)
		contestants = append(contestants, contestant{name: c.name, run: func(calls int) error {
			return together(1, calls, func(int) error { return read(t, req) })
		}})
	}
	contestants = append(contestants, contestant{name: "bare", run: func(calls int) error {
		return together(1, calls, func(int) error { return read(base, req) })
	}})
	race(b, answerCalls, contestants...)
}

// read sends a request, and reads its answer.
func read(t http.RoundTripper, req *http.Request) error {
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	return resp.Body.Close()
}

// An answeringBase answers at once with dingtalkAnswer.
type answeringBase struct{ header http.Header }

func (t answeringBase) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: t.header, Request: req,
		Body: io.NopCloser(strings.NewReader(dingtalkAnswer)), ContentLength: int64(len(dingtalkAnswer)),
	}, nil
}

// The limit that binds, how many callers want more, and for how long.
const (
	quota   = 40 // a second
	workers = 64
	quiet   = 900 * time.Millisecond // between the first start and all others
	settled = time.Second            // what a full bucket gave before is not counted as use
)

// BenchmarkBinding is what the speed is worth: the most starts that are seen in
// any second, of a limit that allows 40, and the share of it that is used
// after the first second. One start is taken, and just before its second is
// over everybody comes, which is what a limit meets after each quiet moment.
func BenchmarkBinding(b *testing.B) {
	b.Run("local", func(b *testing.B) {
		l := newLimiter(b, memstore.New(), throttle.Policy{Limit: throttle.PerSecond(quota)})
		bind(b, "throttle", func(ctx context.Context) error { return acquire(ctx, l, "") })
		bind(b, "xtime", rate.NewLimiter(quota, quota).Wait)
	})
	b.Run("redis", func(b *testing.B) {
		s := newServer(b)
		for i, p := range peers {
			if i == few && !*everyone {
				break
			}
			require.NoError(b, s.watch.FlushDB(b.Context()).Err())
			a, err := p.open(s.watch, limit{quota, time.Second})
			require.NoError(b, err)
			bind(b, p.name, func(ctx context.Context) error { return a.wait(ctx, "key") })
		}
	})
}

// bind reports on one contestant. They come one after the other, so that one
// that polls does not keep the others from waking in time.
func bind(b *testing.B, name string, wait func(context.Context) error) {
	b.Run(name, func(b *testing.B) {
		var starts []time.Duration
		for b.Loop() {
			starts = takeAll(b.Context(), wait)
		}
		require.GreaterOrEqual(b, len(starts), quota, "premise: the limit was reached")
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(stat.Most(starts, time.Second)), "most/s")
		b.ReportMetric(float64(stat.Most(starts, hair)), "most/0.95s")
		b.ReportMetric(100*stat.Used(starts, settled, *load, quota, time.Second), "used-%")
	})
}

// takeAll lets the workers take as many starts as they get, and says when.
func takeAll(ctx context.Context, wait func(context.Context) error) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, *load)
	defer cancel()
	begin := time.Now()
	var mu sync.Mutex
	var starts []time.Duration
	take := func() bool {
		if wait(ctx) != nil {
			return false // there is no more room before the end
		}
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, time.Since(begin))
		return true
	}
	take()
	time.Sleep(time.Until(begin.Add(quiet)))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for take() {
			}
		})
	}
	all.Wait()
	return starts
}

// manyKeys is how many keys a crowd has.
const manyKeys = 10_000

// draws is how many keys are drawn beforehand; a power of two.
const draws = 1 << 16

// crowd draws from many keys by Zipf's law, as customers come: a few come all
// the time and most hardly ever. It always draws the same.
var crowd = sync.OnceValue(func() []string {
	zipf := rand.NewZipf(rand.New(rand.NewPCG(2026, 11)), 1.1, 1, manyKeys-1)
	drawn := make([]string, draws)
	for i := range drawn {
		drawn[i] = fmt.Sprintf("customer-%d", zipf.Uint64())
	}
	return drawn
})

func TestCrowd(t *testing.T) {
	seen := make(map[string]int)
	for _, key := range crowd() {
		seen[key]++
	}
	require.Greater(t, len(seen), manyKeys*4/10, "many different keys are drawn")
	require.Greater(t, seen["customer-0"], draws/20, "some are drawn all the time")
}

// memoryStarts are more starts than a row keeps apart.
const memoryStarts = 200

// memoryLog is the largest limit for which a peer that keeps a log is measured.
const memoryLog = 100_000

// BenchmarkMemory is how many bytes Redis keeps for one budget. The peers keep
// nothing about waiters. All but one of them keep a number or two, however much was
// taken; that one keeps a log of all starts.
func BenchmarkMemory(b *testing.B) {
	client := newServer(b).watch
	for _, l := range []limit{
		{100, time.Second}, {10_000, time.Minute}, {memoryLog, time.Hour}, {1_000_000, time.Hour},
	} {
		b.Run(fmt.Sprintf("%d-per-%v", l.N, l.Per), func(b *testing.B) {
			bytes := func(name string, fill func(b *testing.B)) {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						require.NoError(b, client.FlushDB(b.Context()).Err())
						fill(b)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(bytesOfAll(b, client), "bytes")
				})
			}
			bytes("throttle-one_start", func(b *testing.B) { bookStarts(b, client, l, 1, 1) })
			// Each takes more than half of the quota, so no two fit into one
			// window, and so many have to wait that the row is full.
			bytes("throttle-full_row", func(b *testing.B) { bookStarts(b, client, l, memoryStarts, l.N/2+1) })
			for _, p := range peers[base:] {
				switch {
				case p.name != "sorted_set":
					bytes(p.name, func(b *testing.B) { takeStarts(b, client, p, l, 1) })
				case l.N <= memoryLog:
					bytes(p.name, func(b *testing.B) { takeStarts(b, client, p, l, l.N) })
				}
			}
		})
	}
}

// bookStarts books starts of throttle in one budget, without waiting for them.
func bookStarts(b *testing.B, client *redis.Client, l limit, starts, cost int) {
	b.Helper()
	s := redisstore.New(client, redisstore.Options{})
	for range starts {
		g, err := s.Book(b.Context(), &store.Booking{MaxWait: -1, Charges: []store.Charge{{
			Budget: throttle.Budget{Policy: "memory", Group: "memory", Key: [16]byte{1}},
			Limit:  throttle.SlidingWindow(l.N, l.Per), Cost: cost, Jitter: 35 * time.Millisecond,
		}}})
		require.NoError(b, err)
		require.True(b, g.OK, "premise: every start can be booked")
	}
}

// takeStarts takes starts of a peer.
func takeStarts(b *testing.B, client *redis.Client, p peer, l limit, starts int) {
	b.Helper()
	a, err := p.open(client, l)
	require.NoError(b, err)
	share := min(starts, 50) // every limit above is a multiple of it
	require.NoError(b, together(share, starts, func(int) error { return a.take(b.Context(), "key") }))
}

// bytesOfAll is what all keys take: those of one budget.
func bytesOfAll(b *testing.B, client *redis.Client) float64 {
	b.Helper()
	keys, err := client.Keys(b.Context(), "*").Result()
	require.NoError(b, err)
	require.NotEmpty(b, keys, "premise: there is a budget")
	require.LessOrEqual(b, len(keys), fewKeys, "premise: it is the only one")
	var sum int64
	for _, key := range keys {
		bytes, err := client.MemoryUsage(b.Context(), key, 0).Result()
		require.NoError(b, err)
		sum += bytes
	}
	return float64(sum)
}

// A contestant does the same work as the others of its race, in its own way.
type contestant struct {
	name string
	run  func(calls int) error // makes so many calls

	allocs uint64
	rounds []float64 // nanoseconds for a call, round by round
}

// race gives all contestants a turn in each iteration, so that whatever else
// the machine does meets all of them. It reports medians over the rounds: what
// a call of each contestant takes and how many times that of the others the
// first one takes. The latter is the figure to look at. What belongs to all
// contestants together, such as ns/op, would mean nothing and is left out.
func race(b *testing.B, calls int, all ...contestant) {
	b.Helper()
	for i := range all {
		all[i].warmUp(b, calls)
	}
	for first := 0; b.Loop(); first++ {
		for i := range all {
			all[(first+i)%len(all)].round(b, calls)
		}
	}
	b.ReportMetric(0, "ns/op")
	for i := range all {
		all[i].report(b)
		if i > 0 {
			b.ReportMetric(ratio(&all[0], &all[i]), "x/"+all[i].name)
		}
	}
}

// warmUp brings everything into being that later calls find ready, then counts
// allocations: in a round of its own, because counting them disturbs. As in
// package testing, a fraction of one is none.
func (c *contestant) warmUp(b *testing.B, calls int) {
	require.NoError(b, c.run(calls), c.name)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := c.run(calls)
	runtime.ReadMemStats(&after)
	require.NoError(b, err, c.name)
	c.allocs = (after.Mallocs - before.Mallocs) / uint64(calls)
}

func (c *contestant) round(b *testing.B, calls int) {
	start := time.Now()
	err := c.run(calls)
	took := time.Since(start)
	require.NoError(b, err, c.name)
	c.rounds = append(c.rounds, float64(took)/float64(calls))
}

func (c *contestant) report(b *testing.B) {
	b.ReportMetric(median(c.rounds), c.name+"-ns/call")
	b.ReportMetric(float64(c.allocs), c.name+"-allocs/call")
}

// ratio compares two contestants round by round.
func ratio(c, d *contestant) float64 {
	ratios := make([]float64, len(c.rounds))
	for i := range ratios {
		ratios[i] = c.rounds[i] / d.rounds[i]
	}
	return median(ratios)
}

func median[T cmp.Ordered](all []T) T {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// together makes the calls from several goroutines, each an equal share.
func together(goroutines, calls int, call func(i int) error) error {
	share := calls / goroutines
	errs := make([]error, goroutines)
	work := func(g int) {
		for i := g * share; i < (g+1)*share && errs[g] == nil; i++ {
			errs[g] = call(i)
		}
	}
	if goroutines == 1 {
		work(0)
		return errs[0]
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() { work(g) })
	}
	all.Wait()
	return errors.Join(errs...)
}

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
