package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
)

// programVariable makes the test binary the program.
const programVariable = "DINGTALK_TEST_PROGRAM"

// TestMain lets the test binary be the program, and a node, as the program itself can.
func TestMain(m *testing.M) {
	for _, name := range []string{nodeVariable, programVariable} {
		if _, ok := os.LookupEnv(name); ok {
			main()
			return
		}
	}
	os.Exit(m.Run())
}

// unhurried are the flags of a run that takes two windows and stays clean even
// where a busy machine keeps calls on their way for long.
var unhurried = []string{"-people", "700", "-jitter", "2s"}

// requireClean fails unless the output tells of a company that came in whole.
func requireClean(t *testing.T, out, people string) {
	t.Helper()
	require.Contains(t, out, "pulled     "+people+" of "+people+" people in 35 departments\n")
	for _, name := range []string{"refused", "bans   ", "lost   "} {
		require.Contains(t, out, name+"    0\n")
	}
}

func TestWholeProgram(t *testing.T) {
	var out strings.Builder
	picture := filepath.Join(t.TempDir(), "calls.svg")
	code := program(t.Context(), append(unhurried, "-svg", picture), &out, io.Discard)
	require.Equal(t, exitDone, code, &out)
	requireClean(t, out.String(), "700")
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(svg), "700 people")
}

func TestWithoutTheLibrary(t *testing.T) {
	var out strings.Builder
	code := program(t.Context(), []string{"-unthrottled", "-svg", ""}, &out, io.Discard)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out.String(), "(scaled by a hundred, ban of 3s: really 10,000 calls in 20 s, ban of 5 minutes)")
	require.Contains(t, out.String(), " with 90018\n")
}

// runs runs the program in a process of its own, which can start itself again, and returns
// what it prints.
func runs(t *testing.T, flags ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], flags...)
	cmd.Env = append(os.Environ(), programVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestProcessesShareRedis(t *testing.T) {
	out := runs(t, append(unhurried, "-svg", "", "-redis", redistest.Single(t).URL())...)
	requireClean(t, out, "700")
}

// TestProvokedProcessesComeBack: the ban of a fleet of processes is scaled, the rule
// that an outsider trips is the real one.
func TestProvokedProcessesComeBack(t *testing.T) {
	soak.Only(t)
	out := runs(t, "-provoke", "-ban", "1s", "-edition", "exclusive", "-people", "5000", "-jitter", "1s",
		"-svg", "", "-redis", redistest.Single(t).URL())
	require.Contains(t, out, "pulled     5,000 of 5,000 people in 250 departments\n")
	require.Contains(t, out, "bans       1, answered to ")
	require.Contains(t, out, "lost       0\n")
	require.Contains(t, out, "nobody is missing")
}

func TestRealUpstreamHearsNoSecret(t *testing.T) {
	// Every call fails for good, and every error holds its URL.
	circle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.String(), http.StatusFound)
	}))
	defer circle.Close()
	t.Setenv("DINGTALK_APP_KEY", "some-key")
	t.Setenv("DINGTALK_APP_SECRET", "some-secret")
	var out, errs strings.Builder
	code := program(t.Context(), []string{"-base", circle.URL, "-svg", ""}, &out, &errs)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out.String(), "reason     /gettoken: ")
	require.NotContains(t, out.String()+errs.String(), "some-")
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-nodes 0", "must be at least 1"},
		{"-jitter -1s", "must be positive"},
		{"-edition gold", "standard, professional or exclusive"},
		{"-unthrottled -redis localhost:1", "leave -redis out"},
		{"-unthrottled -base https://oapi.dingtalk.com", "for the fake only"},
		{"-provoke -base https://oapi.dingtalk.com", "for the fake only"},
		{"-provoke -unthrottled", "leave -provoke out"},
		{"-provoke -ban 0", "-ban must be positive"},
		{"-base https://oapi.dingtalk.com", "needs -appkey and -appsecret"},
		{"-base oapi.dingtalk.com", "-base is a URL such as"},
		{"stray", "only flags"},
		{"-nonsense", "not defined"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var errs strings.Builder
			require.Equal(t, exitUsage, program(t.Context(), strings.Fields(c.args), io.Discard, &errs))
			require.Contains(t, errs.String(), c.want)
		})
	}
}

func TestInterruptedProgram(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out strings.Builder
	first := writerFunc(func([]byte) { interrupt() }) // the first line of progress
	require.Equal(t, exitInterrupted, program(ctx, []string{"-svg", ""}, &out, first))
	require.Contains(t, out.String(), "Interrupted: ")
}

// A writerFunc is told of everything that is written.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
