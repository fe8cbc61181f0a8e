package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// outage is a recording of three snapshots: a fleet at work, paused, and with a node that
// died.
const outage = "testdata/outage.jsonl"

func recordedModel(t *testing.T) *model {
	recorded := openedRecording(t, outage)
	require.NoError(t, recorded.readAll(t.Context()))
	m := newModel(t.Context(), time.Second, "starts", "", nil, recorded)
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 12})
	return m
}

func openedRecording(t *testing.T, path string) *recording {
	r, err := openRecording(path, new(labels))
	require.NoError(t, err)
	t.Cleanup(func() { r.file.Close() })
	return r
}

// press gives a model keys, one for each word.
func press(m *model, keys string) {
	for _, key := range strings.Fields(keys) {
		msg := tea.KeyPressMsg{Text: key, Code: rune(key[0])}
		if code, ok := map[string]rune{
			"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "left": tea.KeyLeft, "right": tea.KeyRight,
			"space": tea.KeySpace, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "backspace": tea.KeyBackspace,
		}[key]; ok {
			msg = tea.KeyPressMsg{Code: code}
		}
		m.Update(msg)
	}
}

// screen is what a model shows, without its looks.
func screen(m *model) string { return ansi.Strip(m.View().Content) }

// TestTopKeys: keys sort, filter, stop, scroll and step.
func TestTopKeys(t *testing.T) {
	m := recordedModel(t)
	require.Contains(t, screen(m), "recording 1 of 3  by starts  ? for help")
	require.Regexp(t, `(?s)shop/f32021364bac.*钉钉/`, screen(m))

	press(m, "s s s s")
	require.Contains(t, screen(m), "by name")
	press(m, "s right")
	require.Contains(t, screen(m), "recording 2 of 3  stopped  by urgent")
	require.Contains(t, screen(m), `18/s    18/s  paused by anna@desk: "the sho`)
	m.Update(tickMsg{})
	require.Contains(t, screen(m), "recording 2 of 3")
	press(m, "space")
	m.Update(tickMsg{})
	m.Update(tickMsg{})
	require.Contains(t, screen(m), "recording 3 of 3  by")

	press(m, "/ D I N G x backspace")
	require.Contains(t, screen(m), "filter: DING_")
	press(m, "esc / 钉 enter")
	require.Contains(t, screen(m), "filter: 钉  ")
	require.NotContains(t, screen(m), "shop/")
	press(m, "esc ?")
	require.Contains(t, screen(m), "a step in a recording")
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 8})
	press(m, "? down down down down down down down down down down down")
	require.NotContains(t, screen(m), "BUDGET")
	press(m, "home left left left")
	require.Contains(t, screen(m), "recording 1 of 3")
	require.NotNil(t, m.key("q"))
}

// TestTopFits: nothing is wider or higher than the terminal, and nothing controls it.
func TestTopFits(t *testing.T) {
	for _, size := range []tea.WindowSizeMsg{{Width: 1, Height: 1}, {Width: 20, Height: 3}, {Width: 300, Height: 100}} {
		m := recordedModel(t)
		for range 3 {
			s := m.shown
			s.Nodes[1].Program, s.Nodes[1].Host = "importer\x1b[2J", "pod\u202e"
			s.Budgets[0].Name, s.File.By = "shop\x1b]0;x\x07", "anna\r"
			m.Update(size)
			lines := m.lines()
			require.LessOrEqual(t, len(lines), max(2, size.Height))
			for _, line := range lines {
				require.LessOrEqual(t, ansi.StringWidth(line), size.Width)
				for _, look := range []string{bold, red, plain} {
					line = strings.ReplaceAll(line, look, "")
				}
				require.False(t, strings.ContainsAny(line, "\x1b\x07\r\u202e"))
			}
			press(m, "right")
		}
	}
}

// TestTopAway: while Redis is away the last snapshot stays, with the reason.
func TestTopAway(t *testing.T) {
	m := newModel(t.Context(), time.Second, "starts", "", openedRecording(t, outage).next, nil)
	require.Contains(t, screen(m), "reading")
	m.Update(m.Init()())
	m.Update(readMsg{nil, errors.New("connection refused\x1b[2J")})
	require.Contains(t, screen(m), `connection refused\x1b[2J`)
	require.Contains(t, screen(m), "shop/f32021364bac")
	m.Update(m.read())
	require.NotContains(t, screen(m), "connection refused")
}

// TestTopRuns runs the program with a keyboard that types q.
func TestTopRuns(t *testing.T) {
	var out bytes.Buffer
	_, err := tea.NewProgram(recordedModel(t), tea.WithContext(t.Context()), tea.WithInput(strings.NewReader("q")),
		tea.WithOutput(&out), tea.WithoutSignals(), tea.WithWindowSize(100, 20)).Run()
	require.NoError(t, err)
}

// TestReplay: a file without a snapshot is refused, with its first line.
func TestReplay(t *testing.T) {
	for text, want := range map[string]string{
		"": "it has no snapshot", "{}\n": ":1: it is not a snapshot", "\n\n": ":1: it is not a snapshot", `{"version":2}`: ":1: it is not a snapshot",
	} {
		path := filepath.Join(t.TempDir(), "r")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		code, out := throttleCommand(t, "top", "--replay", path)
		require.Equal(t, exitUsage, code)
		require.Contains(t, out, want)
	}
	code, _ := throttleCommand(t, "top", "--replay", "nothing.jsonl")
	require.Equal(t, exitUsage, code)
}

// record appends the snapshots of a recording to another one.
func record(t *testing.T, from, to string) {
	recorded, done, err := source(openedRecording(t, from).next).record(to)
	require.NoError(t, err)
	for err == nil {
		_, err = recorded(t.Context())
	}
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, done())
}

// TestRecordAndReplay: what was recorded is shown again as it was.
func TestRecordAndReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "again.jsonl")
	record(t, outage, path)
	show := func(path string) string { return must(t, "top", "--replay", path) }
	require.Equal(t, show(outage), show(path))
	require.Equal(t, 3, strings.Count(show(path), "BUDGET"))
	require.Contains(t, must(t, "top", "--replay", path, "--once", "--filter", "钉"), "钉钉/")
	require.Equal(t, 3, strings.Count(must(t, "top", "--replay", path, "--json"), `"illegible"`))
}

// TestReplayCut: a recording whose last line is cut is replayed up to there, and what is recorded
// after that can be read as well.
func TestReplayCut(t *testing.T) {
	text, err := os.ReadFile(outage)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "cut.jsonl")
	require.NoError(t, os.WriteFile(path, text[:len(text)-100], 0o600))
	out := must(t, "top", "--replay", path)
	require.Equal(t, 2, strings.Count(out, "BUDGET"))
	require.Contains(t, out, path+": 1 line could not be read, the first is line 3\n")
	last := must(t, "top", "--replay", path, "--once")
	require.Contains(t, last, "the first is line 3\n")
	require.Contains(t, out, strings.SplitAfterN(last, "\n", 2)[0])

	record(t, outage, path)
	out = must(t, "top", "--replay", path)
	require.Equal(t, 5, strings.Count(out, "BUDGET"))
	require.Contains(t, out, "1 line could not be read, the first is line 3\n")
}

// TestRecordGoesOn: after a snapshot that could not be written the next one is recorded.
func TestRecordGoesOn(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	path := fmt.Sprintf("/dev/fd/%d", write.Fd())
	recorded, done, err := source(openedRecording(t, outage).next).record(path)
	require.NoError(t, err)

	require.NoError(t, read.Close())
	_, err = recorded(t.Context())
	require.ErrorIs(t, err, syscall.EPIPE)

	read, err = os.OpenFile(path, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer read.Close()
	_, err = recorded(t.Context())
	require.NoError(t, err)
	require.NoError(t, errors.Join(write.Close(), done()))
	text, err := io.ReadAll(read)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(text, []byte("\n")))
}

// TestReplayOfALongLine: a line that is no snapshot because of its length ends a replay with an error.
func TestReplayOfALongLine(t *testing.T) {
	text, err := os.ReadFile(outage)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "long.jsonl")
	require.NoError(t, os.WriteFile(path, append(text, bytes.Repeat([]byte("x"), longestLine+1)...), 0o600))
	code, out := throttleCommand(t, "top", "--replay", path)
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "too long")
}

// TestLeftIsForReplays: the keys that step through a recording do not stop the display of a live fleet.
func TestLeftIsForReplays(t *testing.T) {
	live := newModel(t.Context(), time.Second, sorts[0], "", func(context.Context) (*fleet.Snapshot, error) { return new(fleet.Snapshot), nil }, nil)
	replay := recordedModel(t)
	for _, key := range []string{"left", "right", "h", "l"} {
		live.key(key)
		require.False(t, live.frozen, key)
		replay.frozen = false
		replay.key(key)
		require.True(t, replay.frozen, key)
	}
}

// TestReplayAPipe: a recording need not be a file.
func TestReplayAPipe(t *testing.T) {
	text, err := os.ReadFile(outage)
	require.NoError(t, err)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	go func() {
		_, _ = write.Write(text)
		write.Close()
	}()
	require.Equal(t, 3, strings.Count(must(t, "top", "--replay", fmt.Sprintf("/dev/fd/%d", read.Fd())), "BUDGET"))
}

// TestReplayIsInterrupted: a long recording ends with an interrupt.
func TestReplayIsInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.Equal(t, exitInterrupted, run(ctx, []string{"top", "--replay", outage}, new(sink), new(sink)))
}

// TestWideNames: columns stand below each other though some characters are two wide.
func TestWideNames(t *testing.T) {
	tb := table{titles: []string{"A", "B"}, rows: [][]string{{"钉钉", "x"}, {"ab", "y\x1b"}}}
	require.Equal(t, []string{"A     B", "钉钉  x", `ab    y\x1b`}, tb.lines())
	require.Equal(t, fleet.Clean("a\u202eb", 10), `a\u202eb`)
}

// A told is an answer of the waiting API.
type told struct {
	Status         int
	Permit, Policy string
	Lifetime       float64
	Detail         string
}

// post sends a body to the waiting API.
func (s *served) post(path, body string, headers ...string) (a told) {
	r, err := http.NewRequest(http.MethodPost, s.baseURL+"v1/"+path, strings.NewReader(body))
	require.NoError(s, err)
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	if len(text) > 0 {
		require.NoError(s, json.Unmarshal(text, &a), string(text))
	}
	a.Status = resp.StatusCode
	return a
}

// TestWaitingAPI: permits count in the budgets of requests that are sent through, of all proxies;
// they follow the file; and they end with the process.
func TestWaitingAPI(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	at := "--redis=" + redis.URL()
	limiter, err := throttle.NewLimiter(redisstore.New(redis.Client(t), redisstore.Options{}), throttle.Policy{Name: "slots", Limit: throttle.Concurrency(2)})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(names ...string) {
		text := "version: 1\npolicies:\n"
		for _, name := range names {
			text += fmt.Sprintf("  - {name: %s, match: none, limit: 2 in flight}\n", name)
		}
		text += "  - {name: hour, match: \"localhost:1/{path...}\", limit: 2/h}\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("slots")
	a, b := startProxy(t, file, at), startProxy(t, file, at)
	const slots, hour = `{"demands": [{"policy": "slots"}]}`, `{"demands": [{"policy": "hour"}], "wait": 0}`
	permit := a.post("acquire", hour)
	require.Equal(t, http.StatusOK, permit.Status)
	require.LessOrEqual(t, permit.Lifetime, 60.0)
	require.Equal(t, http.StatusForbidden, b.get("localhost:1/"), "it has its start, and is refused when it is dialled")
	full := b.post("acquire", hour)
	require.Equal(t, []any{http.StatusTooManyRequests, "hour"}, []any{full.Status, full.Policy})
	require.Equal(t, http.StatusTooManyRequests, a.get("localhost:1/"), "two starts an hour, of both kinds and both proxies")
	require.Equal(t, http.StatusForbidden, b.post("acquire", hour, "Origin: https://evil.example.com").Status)

	held := a.post("acquire", slots)
	require.Equal(t, http.StatusOK, held.Status)
	require.Equal(t, http.StatusOK, a.post("acquire", slots).Status)
	write("slots", "more")
	a.line("is in force")
	require.Equal(t, http.StatusOK, a.post("acquire", `{"demands": [{"policy": "more"}]}`).Status)

	waiting := make(chan told)
	go func() { waiting <- a.post("acquire", slots) }()
	for waits := 0; waits == 0; {
		st, err := limiter.Status(t.Context(), "")
		require.NoError(t, err)
		waits = st.Waiting
	}
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	require.Contains(t, (<-waiting).Detail, "this process ends")
	require.NoError(t, a.cmd.Wait())
	for range 2 {
		for b.post("acquire", slots).Status != http.StatusOK { // until Redis knows that the permits of the other are released
		}
	}
}
