package promthrottle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds waits for what must come.
const patience = time.Minute

// A server is a Prometheus of a test's own.
type server struct {
	*testing.T
	url string
	log *bytes.Buffer
}

// startPrometheus starts a Prometheus that scrapes targets and evaluates alerts.yaml, each second.
// make soak installs it.
func startPrometheus(t *testing.T, targets []string) *server {
	t.Helper()
	alerts, err := filepath.Abs("alerts.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	text, err := json.Marshal(map[string]any{ // which is YAML, too
		"global":         map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{alerts},
		"scrape_configs": []any{map[string]any{"job_name": "fleet", "static_configs": []any{map[string]any{"targets": targets}}}},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, text, 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	s := &server{t, "http://" + address, new(bytes.Buffer)}
	c := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	c.Stderr = s.log
	require.NoError(t, c.Start(), "make prometheus installs it")
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it was killed
		if t.Failed() {
			t.Log(s.log)
		}
	})
	s.await("Prometheus answers", func() bool {
		resp, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return s
}

// await waits until something is so.
func (s *server) await(what string, is func() bool) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		require.True(s, time.Now().Before(deadline), "%s: not within %v", what, patience)
		time.Sleep(200 * time.Millisecond)
	}
}

// get asks the API, and returns the part "data" of its answer.
func (s *server) get(path string, query url.Values, data any) {
	s.Helper()
	resp, err := http.Get(s.url + path + "?" + query.Encode())
	require.NoError(s, err)
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	require.NoError(s, json.NewDecoder(resp.Body).Decode(&answer))
	require.Equal(s, "success", answer.Status, "%s: %s", query, answer.Error)
}

// query evaluates an expression now, and returns how many series it has, and the first value.
func (s *server) query(expr string) (series int, first float64) {
	s.Helper()
	var data struct{ Result []struct{ Value [2]any } }
	s.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	if len(data.Result) > 0 {
		_, err := fmt.Sscan(data.Result[0].Value[1].(string), &first)
		require.NoError(s, err)
	}
	return len(data.Result), first
}

// pending reports whether an alert's condition holds, if only for less than its time.
func (s *server) pending(name string) bool {
	s.Helper()
	var data struct {
		Alerts []struct{ Labels map[string]string }
	}
	s.get("/api/v1/alerts", nil, &data)
	for _, a := range data.Alerts {
		if a.Labels["alertname"] == name {
			return true
		}
	}
	return false
}

// promtool runs promtool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("promtool", args...).CombinedOutput()
	require.NoError(t, err, "promtool %s: %s", strings.Join(args, " "), out)
}
