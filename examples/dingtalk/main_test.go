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
)

// TestMain lets the test binary be a node, as the program itself can.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(nodeVariable); ok {
		main()
		return
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

// build returns the program as a file, so that it can start itself again.
func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dingtalk.exe")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

func TestProcessesShareRedis(t *testing.T) {
	file, server := build(t), redistest.Single(t)
	cmd := exec.CommandContext(t.Context(), file, append(unhurried, "-svg", "", "-redis", server.URL())...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	requireClean(t, string(out), "700")
}

func TestRealUpstreamHearsNoSecret(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close() // every call fails, and every error holds its URL
	t.Setenv("DINGTALK_APP_KEY", "some-key")
	t.Setenv("DINGTALK_APP_SECRET", "some-secret")
	var out, errs strings.Builder
	code := program(t.Context(), []string{"-base", gone.URL, "-svg", ""}, &out, &errs)
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
		{"-unthrottled -oapi https://oapi.dingtalk.com", "for the fake only"},
		{"-oapi https://oapi.dingtalk.com", "needs -appkey and -appsecret"},
		{"-oapi oapi.dingtalk.com", "URLs such as"},
		{"-api https://api.dingtalk.com", "-api needs -oapi"},
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
