package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

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
