package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/demo/chart"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// programVariable makes the test binary the program, and with it the nodes that the
// program starts.
const programVariable = "THROTTLE_DEMO"

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(programVariable); ok {
		main()
	}
	os.Exit(m.Run())
}

// plays plays the program in virtual time, and returns what it prints.
func plays(t *testing.T, exit int, flags ...string) (out string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		code, err := demo(t.Context(), flags, &b, io.Discard)
		require.NoError(t, err)
		require.Equal(t, exit, code, &b)
		out = b.String()
	})
	return out
}

func TestFleet(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "calls.svg")
	out := plays(t, exitDone, "-svg", picture)
	require.Contains(t, out, "pulled     3000 of 3000 people in 7.")
	require.Contains(t, out, "lost       0 calls\n")
	require.Contains(t, out, "Everybody is there, and DingTalk refused nothing.\n")
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(svg), "at most 20 calls of one API in any second · 0 refused · bans: 0")
}

func TestWithoutTheLibrary(t *testing.T) {
	out := plays(t, exitFailed, "-unthrottled")
	require.Contains(t, out, "bans: 1\n")
	require.Contains(t, out, "Without the library DingTalk refuses")
	require.NotContains(t, out, "lost       0")
}

// TestHalves: both jobs are drawn in each language, from what the API counted, and the API refuses calls without the library only.
func TestHalves(t *testing.T) {
	dir := t.TempDir()
	plays(t, exitDone, "-halves", dir)
	for _, h := range halves {
		drawn, err := os.ReadFile(filepath.Join(dir, h.file))
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(drawn, new(struct{})))
		require.Contains(t, string(drawn), fmt.Sprintf(h.limit, h.perSecond))
		require.NotContains(t, string(drawn), "%!")
		_, with, found := strings.Cut(string(drawn), ">"+h.with+"<")
		require.True(t, found)
		require.NotContains(t, with, `class="refused"`)
		require.Contains(t, string(drawn), `class="refused"`)
	}
}

// TestProvoked: all nodes stop for the ban, and finish the job.
func TestProvoked(t *testing.T) {
	soak.Only(t)
	picture := filepath.Join(t.TempDir(), "provoked.svg")
	out := plays(t, exitDone, "-provoke", "-svg", picture)
	require.Contains(t, out, "lost       0 calls\n")
	require.Contains(t, out, "silent     for 300.")
	require.Contains(t, out, "nobody is missing")
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(svg), "silent for 300.")
	require.Contains(t, plays(t, exitFailed, "-provoke", "-people", "100"), "before the outsider")
}

// TestSilence reads a log: two calls, the outsider, a ban that two calls meet, and three
// calls after it.
func TestSilence(t *testing.T) {
	var log []dingtalktest.Arrival
	begin := time.Unix(0, 0)
	at := func(ms int, api, refusal string) {
		log = append(log, dingtalktest.Arrival{At: begin.Add(time.Duration(ms) * time.Millisecond), API: api, Refusal: refusal})
	}
	at(0, accessToken, "")
	at(1900, userList, "")
	at(2000, outsiderPath, "unknown")
	at(2001, outsiderPath, dingtalktest.Banned)
	require.Equal(t, silence{outsider: 2}, silenceIn(log))
	at(2010, userList, dingtalktest.Banned)
	at(2030, departmentList, dingtalktest.Banned)
	require.Zero(t, silenceIn(log).length(), "without an end")
	require.Zero(t, silenceIn(log).gap(begin))
	at(62_030, userList, "")
	at(63_029, userList, "")
	at(63_030, userList, "")
	s := silenceIn(log)
	require.Equal(t, silence{
		outsider: 2, answered: 2, stopped: 20 * time.Millisecond, from: log[5].At, to: log[6].At, back: 2,
	}, s)
	require.Equal(t, chart.Gap{From: 3, To: 62, Name: "silent for 60.0 s"}, s.gap(begin))
}

// runs runs the program in a process of its own, which can start itself again.
func runs(t *testing.T, flags ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], flags...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	return string(out)
}

// TestProcessesShareRedis: the run takes two windows, and stays clean even where a busy
// machine keeps calls on their way for long.
func TestProcessesShareRedis(t *testing.T) {
	out := runs(t, "-people", "700", "-jitter", "2s", "-redis", redistest.Single(t).URL())
	require.Contains(t, out, "pulled     700 of 700 people in ")
	require.Contains(t, out, "bans: 0\n")
}

// TestProvokedProcessesComeBack: the rule is scaled, so that an outsider on a busy machine
// breaks it in time.
func TestProvokedProcessesComeBack(t *testing.T) {
	soak.Only(t)
	out := runs(t, "-provoke", "-address", "500", "-ban", "1s", "-jitter", "1s", "-redis", redistest.Single(t).URL())
	require.Contains(t, out, "pulled     3000 of 3000 people in ")
	require.Contains(t, out, "nobody is missing")
}

func TestUsage(t *testing.T) {
	t.Setenv(programVariable, "")
	for args, want := range map[string]string{
		"-nodes 0":                        "numbers are positive",
		"-jitter -1s":                     "numbers are positive",
		"stray":                           "only flags",
		"-unthrottled -redis localhost:1": "exclude each other",
		"-unthrottled -provoke":           "exclude each other",
		"-redis redis://localhost:x":      "a node did not start",
	} {
		_, err := demo(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		require.ErrorContains(t, err, want)
	}
}

// TestInterrupted: the first line of progress ends the run.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		var out strings.Builder
		begin := time.Now()
		exit, err := demo(ctx, nil, &out, writer(func() { interrupt() }))
		require.NoError(t, err)
		require.Equal(t, exitInterrupted, exit)
		require.Equal(t, time.Second, time.Since(begin))
		require.Contains(t, out.String(), "Interrupted.")
	})
}

// A writer is told of everything that is written.
type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}
