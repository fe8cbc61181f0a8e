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
	status, answer = post("resume", order{Budget: id, By: "bob", Reason: "it has moved"}, secret)
	require.Equal(t, http.StatusNoContent, status, answer)
	state = awaitState(t, stream, func(d document) bool { return budgetIn(d)["until"] == nil && len(d["acts"].([]any)) == 2 })
	require.Equal(t, "it has moved", state["acts"].([]any)[0].(document)["reason"])
	status, answer = post("resume", order{Budget: id, By: "bob", Reason: "again"}, secret)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, answer, "is not paused")
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
