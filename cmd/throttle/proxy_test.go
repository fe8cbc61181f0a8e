package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A served is a proxy that runs as a process of its own.
type served struct {
	*testing.T
	cmd      *exec.Cmd
	talk     *bufio.Reader
	baseURL  string // "http://127.0.0.1:7070/"
	adminURL string
}

// startProxy starts a proxy that follows a file, or what is pushed if file is "", and may reach the
// host 127.0.0.1.
func startProxy(t *testing.T, file string, flags ...string) *served {
	args := []string{"proxy", "--listen", "127.0.0.1:0", "--private", "127.0.0.1", "--admin", "127.0.0.1:0"}
	if file != "" {
		args = append(args, file)
	}
	cmd, _ := startCommand(t, commandVariable, append(args, flags...)...)
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s := &served{T: t, cmd: cmd, talk: bufio.NewReader(talk)}
	line := s.line("the admin is at ")
	s.adminURL = strings.TrimSuffix(line[strings.Index(line, "http://"):], "readyz\n")
	line = s.line("the proxy is at ")
	if strings.Contains(line, "http://") {
		s.baseURL = strings.TrimSuffix(line[strings.Index(line, "http://"):], "HOST/\n")
	}
	return s
}

// askAdmin returns the status and the text of a page of the admin.
func (s *served) askAdmin(path string) (status int, text string) {
	resp, err := http.Get(s.adminURL + path)
	require.NoError(s, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return resp.StatusCode, string(all)
}

// newUpstream starts an upstream that proxies trust, and returns its host and port.
func newUpstream(t *testing.T, f http.HandlerFunc) string {
	upstream := httptest.NewTLSServer(f)
	t.Cleanup(upstream.Close)
	return upstream.Listener.Addr().String()
}

// newFile returns the path of a file with one policy for a host.
func newFile(t *testing.T, host, limit string) string {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	text := fmt.Sprintf("version: 1\npolicies:\n  - {name: api, match: \"%s/\", limit: %s}\n", host, limit)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// line reads stderr up to a line with a text.
func (s *served) line(with string) string {
	for {
		line, err := s.talk.ReadString('\n')
		require.NoError(s, err)
		if strings.Contains(line, with) {
			return line
		}
	}
}

// get returns the status of a request.
func (s *served) get(path string) int {
	resp, err := http.Get(s.baseURL + path)
	require.NoError(s, err)
	resp.Body.Close()
	return resp.StatusCode
}

// detail returns the answer of a request that the proxy refuses.
func (s *served) detail(path string) string {
	resp, err := http.Get(s.baseURL + path)
	require.NoError(s, err)
	defer resp.Body.Close()
	require.Equal(s, http.StatusForbidden, resp.StatusCode)
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return string(text)
}

// TestProxy: two proxies share a budget, follow their file, and end when they are told to.
func TestProxy(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	var arrived atomic.Int64
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })

	file := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(hosts ...string) {
		text := "version: 1\npolicies:\n"
		for i, host := range hosts {
			text += fmt.Sprintf("  - {name: api%d, match: \"%s/\", limit: 3/h}\n", i, host)
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(host)
	a, b := startProxy(t, file, at), startProxy(t, file, at)
	for _, s := range []*served{a, b, a} {
		require.Equal(t, http.StatusOK, s.get(host+"/x"))
	}
	require.Equal(t, http.StatusTooManyRequests, a.get(host+"/x"))
	require.Equal(t, http.StatusTooManyRequests, b.get(host+"/x"))
	require.EqualValues(t, 3, arrived.Load())
	require.Equal(t, 2, strings.Count(must(t, "status", at), "throttle-proxy"))

	require.Contains(t, a.detail("localhost:1/"), "no policy names this host")
	write(host, "localhost:1")
	a.line("is in force")
	require.Contains(t, a.detail("localhost:1/"), "not public")
	for _, s := range []*served{a, b} {
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, s.cmd.Wait())
	}
}

// TestProxyUsage: what is unsafe, or has no meaning, is refused before anything is served.
func TestProxyUsage(t *testing.T) {
	const good = "../../policyfile/testdata/good.yaml"
	for _, args := range [][]string{
		{good, "--listen", "0.0.0.0:7070"}, {good, "--listen", ":7070"}, {good, "--listen", "[::]:7070"}, {good, "--listen", "example.com:7070"}, {good, "--listen", "7070"},
		{good, "--redis", "redis+moon://127.0.0.1:1"}, {good, "--listen", "127.0.0.1:0", "--token-file", "nothing"}, {good, "--listen", "127.0.0.1:0", "--token-file", "testdata/empty"}, {good, "--listen", "127.0.0.1:0", "--token-file", "go.mod"},
		{good, "--listen", "0.0.0.0:0", "--expose"}, {good, "--listen", "unix:" + good}, {good, "--listen", "unix:/nowhere/at/all"},
		{"nothing.yaml"}, {"../../policyfile/testdata/bad.yaml"}, {},
	} {
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"proxy"}, args...), new(sink), new(sink)), "%v", args)
	}
}
