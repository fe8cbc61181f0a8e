package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

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
