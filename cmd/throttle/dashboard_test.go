package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

const pageToken = "0123456789abcdef0123456789abcdef"

// startDashboard starts the command, and returns the page's address and what ends the command.
func startDashboard(t *testing.T, args ...string) (url string, end func() error) {
	cmd, _ := startCommand(t, commandVariable, append([]string{"dashboard", "--listen", "127.0.0.1:0"}, args...)...)
	return startPage(t, cmd)
}

// startPage starts a command that serves the page, as startDashboard does.
func startPage(t *testing.T, cmd *exec.Cmd) (url string, end func() error) {
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(talk)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if _, rest, found := strings.Cut(line, "the page is at "); found {
			url, _, _ = strings.Cut(rest, ";")
			return url, func() error {
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
				return cmd.Wait()
			}
		}
	}
}

// ask asks the page, and returns the status and what the answer begins with.
func ask(t *testing.T, method, url, body, token string) (int, string) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	begin := make([]byte, 200)
	n, err := io.ReadFull(resp.Body, begin)
	if err != io.ErrUnexpectedEOF && err != io.EOF {
		require.NoError(t, err)
	}
	return resp.StatusCode, string(begin[:n])
}

// TestDashboard: the page is served until the command is told to end, and shows and acts with the token in a file alone.
func TestDashboard(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(pageToken+"\n"), 0o600))
	url, end := startDashboard(t, "--token-file", file, at)
	status, text := ask(t, http.MethodGet, url, "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "<!doctype html>")
	require.NotContains(t, url, pageToken)
	status, _ = ask(t, http.MethodGet, url+"events", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, text = ask(t, http.MethodGet, url+"events", "", pageToken)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "event: state")
	const order = `{"budget":"shop/000000000000","for":1000,"by":"ann","reason":"x"}`
	status, _ = ask(t, http.MethodPost, url+"pause", order, "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, text = ask(t, http.MethodPost, url+"pause", order, pageToken)
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, text, "no node has reported")
	require.NoError(t, end())
}

// TestDashboardKeepsItsViewers: connections without the token, as many as like to, do not cut off who looks.
func TestDashboardKeepsItsViewers(t *testing.T) {
	t.Parallel()
	cmd, _ := startCommand(t, commandVariable, "dashboard", "--listen", "127.0.0.1:0", "--redis", redistest.Single(t).URL())
	cmd.Env = append(cmd.Env, tokenVariable+"="+pageToken)
	url, end := startPage(t, cmd)
	r, err := http.NewRequest(http.MethodGet, url+"events", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+pageToken)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()

	for range mostPageConns + 10 {
		conn, err := net.Dial("tcp", r.URL.Host)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, 1<<20)
	changes := 0
	for changes < 3 && events.Scan() {
		if events.Text() == "event: change" {
			changes++
		}
	}
	require.Equal(t, 3, changes, "the stream goes on: %v", events.Err())
	require.NoError(t, end())
}

// TestDashboardMakesAToken: without a token of somebody's the command makes one and prints a link with it, and the token shows and acts.
func TestDashboardMakesAToken(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	link, end := startDashboard(t, at)
	url, own, found := strings.Cut(link, "#token=")
	require.True(t, found, link)
	require.GreaterOrEqual(t, len(own), 26)
	status, _ := ask(t, http.MethodGet, url+"events", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, _ = ask(t, http.MethodGet, url+"events", "", own)
	require.Equal(t, http.StatusOK, status)
	status, _ = ask(t, http.MethodPost, url+"pause", `{"budget":"shop/000000000000","for":1000,"by":"ann","reason":"x"}`, own)
	require.Equal(t, http.StatusNotFound, status)
	require.NoError(t, end())
}

// TestDashboardWithoutRedis: the page is served while Redis is away, and says so. --local lets this machine look.
func TestDashboardWithoutRedis(t *testing.T) {
	t.Parallel()
	link, end := startDashboard(t, "--redis", "redis://127.0.0.1:1", "--timeout", "500ms", "--local", "--watch")
	url, _, _ := strings.Cut(link, "#")
	status, text := ask(t, http.MethodGet, url+"events", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `"failed":"`)
	require.NoError(t, end())
}

// TestDashboardWarnsOfALooseToken: who can read the token can act, so a file that others may read is told of.
func TestDashboardWarnsOfALooseToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(pageToken+"\n"), 0o600))
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o620: true} {
		require.NoError(t, os.Chmod(file, mode))
		var out, talk strings.Builder
		// A budget too many ends the command before it serves.
		require.Equal(t, exitUsage, run(t.Context(), []string{"dashboard", "--redis", "redis://127.0.0.1:1", "--token-file", file, "--budgets", "1001"}, &out, &talk))
		told = told && runtime.GOOS != "windows" // whose files have no rights of others
		require.Equal(t, told, strings.Contains(talk.String(), "WARNING: other users of this machine may read or write "+file), "%o", mode)
	}
}

// TestDashboardIsRefused: what would let others in, or nobody, is refused with what would help.
func TestDashboardIsRefused(t *testing.T) {
	t.Setenv(addressVariable, "redis://127.0.0.1:1")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"other machines would reach this address": {"--listen", "0.0.0.0:0"},
		"is empty":                    {"--token-file", empty},
		"no such file":                {"--token-file", empty + "x"},
		"use 1 to 1000, or 0 for 100": {"--budgets", "1001"},
	} {
		var out, talk strings.Builder
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"dashboard"}, args...), &out, &talk), want)
		require.Contains(t, talk.String(), want)
	}
	t.Setenv(tokenVariable, "secret")
	var out, talk strings.Builder
	require.Equal(t, exitUsage, run(t.Context(), []string{"dashboard"}, &out, &talk))
	require.Contains(t, talk.String(), "too easy to guess")
	require.NotContains(t, talk.String(), "secret")
}
