package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// startProgram starts a program of the fleet that has started something for some keys.
func startProgram(t *testing.T, client redis.UniversalClient, p throttle.Policy, keys ...string) *fleet.Reporter {
	r := must(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: "importer", Interval: time.Hour}))
	t.Cleanup(r.Close)
	p.Keyed = !slices.Contains(keys, "")
	limiters, err := throttle.NewLimiters(throttle.Config{Store: r, Policies: []throttle.Policy{p}})
	require.NoError(t, err)
	l, err := limiters.Limiter(p.Name)
	require.NoError(t, err)
	for _, key := range keys {
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), key, 1)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return r.Err() == nil }, time.Minute, time.Millisecond)
	r.ReportSoon()
	return r
}

// serve serves the page.
func serve(t *testing.T, c Config) string {
	server := httptest.NewServer(newHandler(t, c))
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return server.URL + "/"
}

// open opens a stream, which ends with the test, and returns its lines.
func open(t *testing.T, url string) *bufio.Reader {
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"events", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewReader(resp.Body)
}

// awaitEvents reads so many events, and returns the last one's data.
func awaitEvents(t *testing.T, from *bufio.Reader, n int) (data string) {
	for n > 0 {
		line, err := from.ReadString('\n')
		require.NoError(t, err)
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			data = text
			n--
		}
	}
	return data
}

// awaitState reads events until the state that they make fulfils a condition.
func awaitState(t *testing.T, from *bufio.Reader, is func(document) bool) document {
	var state any
	for {
		var data document
		require.NoError(t, json.Unmarshal([]byte(awaitEvents(t, from, 1)), &data))
		if whole, ok := data["state"]; ok {
			state = whole
		} else {
			state = merge(state, any(data))
		}
		if d := state.(document); is(d) {
			return d
		}
	}
}

// commands returns how many commands a server has done.
func commands(t *testing.T, client *redis.Client) int64 {
	info, err := client.Info(t.Context(), "stats").Result()
	require.NoError(t, err)
	_, text, _ := strings.Cut(info, "total_commands_processed:")
	text, _, _ = strings.Cut(text, "\r")
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// A counted source counts its readings.
type counted struct {
	Source
	from     reader
	readings atomic.Int64
}

func (c *counted) reader(budgets int) reader {
	c.from = c.Source.reader(budgets)
	return c
}

func (c *counted) read(ctx context.Context, fresh bool) (*reading, error) {
	c.readings.Add(1)
	return c.from.read(ctx, fresh)
}

// TestHundredPagesCostAsOne: however many look, the source is read no more often, and a reading costs Redis the same.
func TestHundredPagesCostAsOne(t *testing.T) {
	server := redistest.Single(t)
	client := server.Client(t)
	startProgram(t, client, throttle.Policy{Name: "shop", Match: "api.example.com/", Limit: throttle.PerHour(30)}, "acme", "other")

	const often = 50 * time.Millisecond
	source := &counted{Source: Fleet(must(fleet.New(server.Client(t), fleet.Options{})))}
	h := newHandler(t, Config{Source: source})
	h.sampler.every = often
	page := httptest.NewServer(h)
	t.Cleanup(page.Close)
	t.Cleanup(page.CloseClientConnections)
	begun := time.Now()
	// cost returns how many commands a reading takes while so many more look.
	cost := func(more int) float64 {
		for range more {
			awaitEvents(t, open(t, page.URL+"/"), 1)
		}
		read, before := source.readings.Load(), commands(t, client)
		require.Eventually(t, func() bool { return source.readings.Load() >= read+20 }, time.Minute, time.Millisecond)
		after, n := commands(t, client), source.readings.Load()
		require.LessOrEqual(t, n, int64(time.Since(begun)/often)+2)
		return float64(after-before) / float64(n-read)
	}
	one := cost(1)
	require.Greater(t, one, 2.0)
	require.Less(t, cost(99), 1.5*one) // a reading that has begun, and the test's own commands, make a difference
}

// TestFleetSource: a fleet in Redis is shown, hashed keys only, and paused and resumed through the page.
func TestFleetSource(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	keyed := throttle.Policy{Name: "shop", Match: "api.example.com/", Limit: throttle.PerHour(30), Key: throttle.Header("X")}
	reporter := startProgram(t, client, keyed, "acme", "acme")
	all := must(fleet.New(client, fleet.Options{}))
	url := serve(t, Config{Source: Fleet(all), Token: secret})
	stream := open(t, url)
	id := store.BudgetOf("shop", "acme").String()
	budgetIn := func(d document) document { b, _ := d["budgets"].(document)[id].(document); return b }
	state := awaitState(t, stream, func(d document) bool { return budgetIn(d) != nil })
	b := budgetIn(state)
	require.Equal(t, float64(2), b["used"])
	require.Equal(t, float64(30), b["capacity"])
	require.Equal(t, "example.com", b["group"])
	text, err := json.Marshal(state)
	require.NoError(t, err)
	require.NotContains(t, string(text), "acme")
	require.Equal(t, "importer", state["nodes"].(document)[reporter.ID()].(document)["program"])

	post := func(path string, body any, token string) (int, string) {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		r, err := http.NewRequest(http.MethodPost, url+path, bytes.NewReader(text))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(answer)
	}
	pause := order{Budget: id, For: 600_000, By: "ann", Reason: "the shop moves"}
	status, _ := post("pause", pause, "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, answer := post("pause", pause, secret)
	require.Equal(t, http.StatusNoContent, status, answer)
	state = awaitState(t, stream, func(d document) bool { return budgetIn(d)["until"] != nil && len(d["acts"].([]any)) == 1 })
	b = budgetIn(state)
	require.Equal(t, "ann", b["by"])
	require.Equal(t, "the shop moves", b["reason"])
	require.Contains(t, b["why"].(document)["en"], "ann paused it: “the shop moves”; it opens in ")
	band := b["bands"].([]any)[0].(document)
	require.Equal(t, "ann", band["by"])

	status, answer = post("pause", order{Budget: id, For: 1000, By: "bob", Reason: "shorter"}, secret)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, answer, "resume it first")
	status, answer = post("pause?lang=zh", order{Budget: id, For: 1000, By: "bob", Reason: "shorter"}, secret)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, answer, "已被 ann 暂停（“the shop moves”）")
	status, answer = post("resume", order{Budget: id, By: "bob", Reason: "it has moved"}, secret)
	require.Equal(t, http.StatusNoContent, status, answer)
	state = awaitState(t, stream, func(d document) bool { return budgetIn(d)["until"] == nil && len(d["acts"].([]any)) == 2 })
	require.Equal(t, "it has moved", state["acts"].([]any)[0].(document)["reason"])
	status, answer = post("resume", order{Budget: id, By: "bob", Reason: "again"}, secret)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, answer, "is not paused")
	_, answer = post("resume?lang=zh", order{Budget: id, By: "bob", Reason: "again"}, secret)
	require.Contains(t, answer, id+" 没有被暂停")
	status, _ = post("pause", order{Budget: "shop/000000000000", For: 1000, By: "bob", Reason: "x"}, secret)
	require.Equal(t, http.StatusNotFound, status)

	acts, _, err := all.Audit(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []string{"resume", "pause"}, []string{acts[0].Act, acts[1].Act})
}

// TestFleetShowsWhatIsClosed: a budget that is closed is shown, though others are used more and not all are shown.
func TestFleetShowsWhatIsClosed(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	keyed := throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerHour(30)}
	reporter := startProgram(t, client, keyed, "a", "a", "b", "b", "c", "c", "banned")
	l, err := throttle.NewLimiter(reporter, keyed)
	require.NoError(t, err)
	require.NoError(t, l.Pause(t.Context(), "banned", time.Hour))
	id := store.BudgetOf("shop", "banned").String()
	require.Eventually(t, func() bool {
		reporter.ReportSoon() // a second report within a second would come with the next one, in an hour
		s, err := must(fleet.New(client, fleet.Options{})).Snapshot(t.Context(), 0)
		require.NoError(t, err)
		return len(s.Budgets) == 4 && s.Budgets[0].By == fleet.ByProgram
	}, time.Minute, time.Millisecond)
	r, err := Fleet(must(fleet.New(client, fleet.Options{}))).reader(1).read(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, r.Budgets, 1)
	require.Equal(t, id, r.Budgets[0].ID)
	require.Equal(t, 3, r.BudgetsLeftOut)
}

// TestOff: the page has, of each program that is off, who turned it off and why.
func TestOff(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	reporter := startProgram(t, client, throttle.Policy{Name: "shop", Match: "api.example.com/", Limit: throttle.PerHour(30)}, "")
	all := must(fleet.New(client, fleet.Options{}))
	stream := open(t, serve(t, Config{Source: Fleet(all)}))
	node := func(d document) document {
		nodes, _ := d["nodes"].(document)
		n, _ := nodes[reporter.ID()].(document)
		return n
	}
	offIn := func(d document) any { return node(d)["off"] }
	awaitState(t, stream, func(d document) bool { return node(d) != nil && offIn(d) == nil })

	_, _, err := all.TurnOff(t.Context(), time.Hour, "ann", "the limits are wrong")
	require.NoError(t, err)
	state := awaitState(t, stream, func(d document) bool { return offIn(d) != nil })
	require.Equal(t, `off by ann: "the limits are wrong"`, offIn(state))
	require.Equal(t, "off", state["acts"].([]any)[0].(document)["act"])

	_, _, err = all.TurnOn(t.Context(), "ann", "")
	require.NoError(t, err)
	awaitState(t, stream, func(d document) bool { return node(d) != nil && offIn(d) == nil })
}

// TestOffProcess: the page of one program says so as well.
func TestOffProcess(t *testing.T) {
	off := new(store.Switch)
	p := NewProcess(store.WithSwitch(memstore.New(), off))
	require.Empty(t, p.off())
	off.TurnOff(store.Off{By: "flag"})
	require.Equal(t, "off by flag", p.off())
	off.TurnOn()
	t.Setenv(store.OffVariable, "1")
	require.Equal(t, "off by THROTTLE_OFF", p.off())
}

// TestSeries: points are kept for an hour, those of a budget that is gone, too, and are found by their moment.
func TestSeries(t *testing.T) {
	begun := time.UnixMilli(1_000_000_000)
	s := make(series)
	add := func(after time.Duration, ids ...string) {
		r := &reading{At: begun.Add(after)}
		for _, id := range ids {
			r.Budgets = append(r.Budgets, budget{ID: id, Used: int(after / time.Second), Until: begun.Add(10 * time.Second).UnixMilli()})
		}
		s.add(r)
	}
	_, _, known := s.at("shop", begun.UnixMilli())
	require.False(t, known)
	for n := range 3 * mostPoints {
		if after := time.Duration(n) * every; n < 60 {
			add(after, "shop", "gone")
		} else {
			add(after, "shop")
		}
		require.LessOrEqual(t, len(s["shop"].fine), mostPoints+mostPoints/8+1)
	}
	require.Empty(t, s["gone"].fine)
	last := begun.Add(time.Duration(3*mostPoints-1) * every)
	p, _, known := s.at("shop", last.Add(-1).UnixMilli())
	require.True(t, known)
	require.Equal(t, 3*mostPoints-2, p.Used)
	require.Zero(t, p.Left)
	c := s.recent("shop", 2)
	require.Equal(t, []int{3*mostPoints - 2, 3*mostPoints - 1}, c.Used)

	s = make(series)
	for range 2 * mostPoints { // each act has the source read
		add(3*time.Second, "shop")
	}
	require.LessOrEqual(t, len(s["shop"].fine), mostPoints+mostPoints/8+1)
	p, _, _ = s.at("shop", begun.Add(time.Hour).UnixMilli())
	require.Equal(t, int64(7000), p.Left)
}

// TestWhy: the sentence that says why requests wait names what holds them, in each language.
func TestWhy(t *testing.T) {
	window := moment{Limit: "20/s", Kind: windowed, Capacity: 20}
	with := func(m moment, change func(*moment)) moment {
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		moment           moment
		english, chinese string
	}{
		"room": {
			with(window, func(m *moment) { m.Used = 7 }),
			"Nothing holds a request: 7 of 20 are used.",
			"不用排队：限额 20，用了 7。",
		},
		"full": {
			with(window, func(m *moment) { m.Used, m.Wait = 20, 812*time.Millisecond }),
			"All 20 of 20/s are used: the next free start is in 812 ms, when the oldest one no longer counts.",
			"20/s 已经用完，再过 812 毫秒最早的一批不再计数，才能放行。",
		},
		"booked": {
			with(window, func(m *moment) { m.Used, m.Booked, m.Wait, m.Waiting = 20, 17, 3266*time.Millisecond, 63 }),
			"20 of 20 are used, the next 17 booked, and those in line come first: a request that comes now could start in 3.3 s. 63 requests wait.",
			"限额 20，用了 20，另有 17 个已排定，前面还有请求在排队：现在来的请求再过 3.3 秒才能放行。有 63 个请求在排队。",
		},
		"full, with a line": {
			moment{Limit: "5/s", Kind: windowed, Capacity: 5, Used: 5, Booked: 2, Waiting: 42, Wait: 8400 * time.Millisecond},
			"5 of 5 are used, the next 2 booked, and those in line come first: a request that comes now could start in 8.4 s. 42 requests wait.",
			"限额 5，用了 5，另有 2 个已排定，前面还有请求在排队：现在来的请求再过 8.4 秒才能放行。有 42 个请求在排队。",
		},
		"booked, no line": {
			with(window, func(m *moment) { m.Used, m.Booked, m.Wait, m.Waiting = 20, 3, 266*time.Millisecond, 3 }),
			"20 of 20 are used and the next 3 booked: the next free start is in 266 ms. 3 requests wait.",
			"限额 20，用了 20，另有 3 个已排定，再过 266 毫秒才能放行。有 3 个请求在排队。",
		},
		"held elsewhere": {
			with(window, func(m *moment) { m.Used, m.Waiting = 3, 18 }),
			"There is room here: those who wait start in a moment, or another limit holds them. 18 requests wait.",
			"这里有余量：排队的马上放行，或者在等别的限额。有 18 个请求在排队。",
		},
		"line": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Waiting = 12, 400*time.Millisecond, 40 }),
			"12 of 20 are used, and those who came first take the rest: the next free start is in 400 ms. 40 requests wait.",
			"限额 20，用了 12，余下的先给排在前面的请求，再过 400 毫秒才能放行。有 40 个请求在排队。",
		},
		"paused": {
			with(window, func(m *moment) {
				m.Left, m.By, m.Reason, m.Waiting, m.Wait = 9*time.Minute+51*time.Second, "alice", "the shop moves", 62, 10*time.Minute
			}),
			"alice paused it: “the shop moves”; it opens in 9 min 51 s. 62 requests wait.",
			"alice 人工暂停了这份限额，原因是“the shop moves”，9 分钟 51 秒后恢复。有 62 个请求在排队。",
		},
		"paused by a Chinese name": {
			with(window, func(m *moment) { m.Left, m.By, m.Reason = 10*time.Second, "小王", "短信通道维护" }),
			"小王 paused it: “短信通道维护”; it opens in 10 s.",
			"小王人工暂停了这份限额，原因是“短信通道维护”，10 秒后恢复。",
		},
		"paused without a reason": {
			with(window, func(m *moment) { m.Left, m.By = time.Hour, "alice" }),
			"alice paused it; it opens in 1 h.",
			"alice 人工暂停了这份限额，1 小时后恢复。",
		},
		"paused by a program": {
			with(window, func(m *moment) { m.Left, m.Closer = time.Minute, fleet.ByProgram }),
			"A program paused it; it opens in 1 min.",
			"程序自己暂停了这份限额，1 分钟后恢复。",
		},
		"ban": {
			with(window, func(m *moment) { m.Left, m.Repeated = 5*time.Minute, 2 }),
			"The upstream refused a request, so nothing starts for another 5 min; it refused again 2 times in a row.",
			"对方拒绝过请求，限额自动暂停，5 分钟后恢复；恢复之后又被拒绝，已连续 2 次。",
		},
		"slow start": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Opened = 2, 130*time.Millisecond, 1400*time.Millisecond }),
			"It opened 1.4 s ago and fills up slowly after the penalty: the next free start is in 130 ms.",
			"1.4 秒前才恢复，正在慢慢加量，再过 130 毫秒才能放行。",
		},
		"slots": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 8, Waiting: 3},
			"All 8 slots are in use: the next request starts when another one ends. 3 requests wait.",
			"同时最多 8 个，已经占满，要等前面的请求结束。有 3 个请求在排队。",
		},
		"slots, nobody waits": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 8},
			"All 8 slots are in use: the next request starts when another one ends.",
			"同时最多 8 个，已经占满，要等前面的请求结束。",
		},
		"one slot": {
			moment{Limit: "1 in flight", Kind: inFlight, Capacity: 1, Used: 1, Waiting: 2},
			"The only slot is in use: the next request starts when another one ends. 2 requests wait.",
			"同时最多 1 个，已经占满，要等前面的请求结束。有 2 个请求在排队。",
		},
		"slots with room": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 7},
			"Nothing holds a request: 7 of 8 are used.",
			"不用排队：限额 8，用了 7。",
		},
		"slots, in line": {
			moment{Limit: "8 in flight", Kind: inFlight, Capacity: 8, Used: 7, Waiting: 3},
			"7 of 8 slots are in use, and those who came first take the others. 3 requests wait.",
			"同时最多 8 个，已占 7 个，其余的先给排在前面的请求。有 3 个请求在排队。",
		},
		"spaced": {
			moment{Limit: "40/s paced", Kind: spaced, Capacity: 1, Used: 1, Wait: 25 * time.Millisecond},
			"40/s paced spaces starts out: the next free start is in 25 ms.",
			"40/s paced 要求请求均匀发出，再过 25 毫秒才能放行。",
		},
		"bucket": {
			moment{Limit: "2/s burst 40", Kind: bucketed, Capacity: 40, Used: 40, Booked: 3, Wait: 2 * time.Second},
			"The bucket of 2/s burst 40 is empty and the next 3 booked: the next free start is in 2.0 s.",
			"2/s burst 40 的令牌用完了，另有 3 个已排定，再过 2.0 秒才能放行。",
		},
		"bucket, with a line": {
			moment{Limit: "2/s burst 40", Kind: bucketed, Capacity: 40, Used: 40, Booked: 3, Waiting: 9, Wait: 5 * time.Second},
			"The bucket of 2/s burst 40 is empty and the next 3 booked; those in line come first: a request that comes now could start in 5.0 s. 9 requests wait.",
			"2/s burst 40 的令牌用完了，另有 3 个已排定，前面还有请求在排队：现在来的请求再过 5.0 秒才能放行。有 9 个请求在排队。",
		},
		"spaced, with a line": {
			moment{Limit: "40/s paced", Kind: spaced, Capacity: 1, Used: 1, Waiting: 4, Wait: 125 * time.Millisecond},
			"40/s paced spaces starts out; those in line come first: a request that comes now could start in 125 ms. 4 requests wait.",
			"40/s paced 要求请求均匀发出，前面还有请求在排队：现在来的请求再过 125 毫秒才能放行。有 4 个请求在排队。",
		},
		"unlimited": {
			moment{Limit: "unlimited", Kind: unlimited},
			"Nothing holds a request.",
			"不用排队。",
		},
		"never": {
			with(window, func(m *moment) { m.Used, m.Wait = 20, -1 }),
			"No start can be planned.",
			"排不出放行时间。",
		},
		"learned": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Ceiling = 12, time.Second, 12.5 }),
			"12 of 20 are used, and those who came first take the rest: the next free start is in 1.0 s. The fleet has learned to use only 12.5 of 20/s.",
			"限额 20，用了 12，余下的先给排在前面的请求，再过 1.0 秒才能放行。根据对方的拒绝，目前只用 20/s 里的 12.5。",
		},
		"shadow": {
			with(window, func(m *moment) { m.Used, m.Wait, m.Shadow = 20, time.Second, true }),
			"This policy only counts. If it held requests: all 20 of 20/s are used: the next free start is in 1.0 s, when the oldest one no longer counts.",
			"这条策略只计数。如果生效：20/s 已经用完，再过 1.0 秒最早的一批不再计数，才能放行。",
		},
		"shadow with room": {
			with(window, func(m *moment) { m.Shadow = true }),
			"This policy only counts, and would hold nothing now.",
			"这条策略只计数。就算生效，现在也不用排队。",
		},
		"unknown": {
			moment{Err: "no node says what its limit is"},
			"The state of the budget is unknown: no node says what its limit is",
			"不知道这份限额现在怎么样：no node says what its limit is",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, phrase{c.english, c.chinese}, whyOf(c.moment))
		})
	}
}

// TestSpan: lengths of time have two units at the most, as the page's script writes them.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		0:                                     {"0 ms", "0 毫秒"},
		999 * time.Millisecond:                {"999 ms", "999 毫秒"},
		1260 * time.Millisecond:               {"1.3 s", "1.3 秒"},
		12 * time.Second:                      {"12 s", "12 秒"},
		time.Minute:                           {"1 min", "1 分钟"},
		61 * time.Minute:                      {"1 h 1 min", "1 小时 1 分钟"},
		time.Hour + 3*time.Second:             {"1 h", "1 小时"},
		26*time.Hour + 30*time.Minute:         {"1 d 2 h", "1 天 2 小时"},
		59*time.Second + 700*time.Millisecond: {"1 min", "1 分钟"},
	} {
		require.Equal(t, want, [2]string{span(d), spanChinese(d)}, d.String())
	}
}

// TestRequestsOf: requests are counted, and not what they cost.
func TestRequestsOf(t *testing.T) {
	require.Equal(t, 0, requestsOf(0, 0, 0, 200))
	require.Equal(t, 6, requestsOf(6, 0, 1200, 200))
	require.Equal(t, 8, requestsOf(6, 400, 1600, 200))
	require.Equal(t, 7, requestsOf(6, 100, 1300, 1000), "a start that is booked is one request at least")
	require.Equal(t, 7, requestsOf(0, 3, 7, 1), "a store that does not count")
	require.Equal(t, 4, requestsOf(0, 0, 800, 200))
	require.InDelta(t, 1, average(0, 0), 0)
	require.InDelta(t, 250, average(1000, 4), 0)
}
