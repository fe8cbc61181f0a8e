//go:build unix

package waitclients

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNightWorker: examples/night/worker.py gets a new token after a 401, comes again after a 429, goes on after a kill with the page that it had
// not noted, and has each row once, also where the kill left half a row.
func TestNightWorker(t *testing.T) {
	var mu sync.Mutex
	tokens, asked, hang := 0, []string{}, true
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens++
		fmt.Fprintf(w, `{"token":"t%d","lasts":60}`, tokens)
	}))
	defer api.Close()
	host := api.Listener.Addr().String()

	refusals := []int{http.StatusUnauthorized, http.StatusTooManyRequests}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		cursor := r.FormValue("cursor")
		asked = append(asked, r.Header.Get("Authorization")+" "+r.URL.Path[len("/"+host):]+" "+cursor)
		status := http.StatusOK
		if cursor == "b&1" && len(refusals) > 0 {
			status, refusals = refusals[0], refusals[1:]
		}
		hangs := hang
		mu.Unlock()

		if cursor == "c" && hangs { // until the worker is killed
			<-r.Context().Done()
			return
		}
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		next := map[string]string{"": "b&1", "b&1": "c"}[cursor]
		fmt.Fprintf(w, `{"orders": [{"id": "%s-1"}, {"id": "%[1]s-2"}], "next": %q}`, cursor, next)
	}))
	defer proxy.Close()

	worker, err := filepath.Abs("../../../../examples/night/worker.py")
	require.NoError(t, err)
	_, err = os.ReadFile(worker) // so that no result of an older file is cached
	require.NoError(t, err)
	dir := t.TempDir()
	certificate := filepath.Join(dir, "cert.pem")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}), 0o600))
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "python3", worker, "3", "3")
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		cmd.Env = append(os.Environ(), "API_HOST="+host, "PROXY="+proxy.URL, "SSL_CERT_FILE="+certificate)
		require.NoError(t, cmd.Start())
		return cmd
	}

	killed := start()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(asked) == 5
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())
	rows, err := os.OpenFile(filepath.Join(dir, "part-03.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = rows.WriteString(`{"id":"c-`)
	require.NoError(t, err)
	require.NoError(t, rows.Close())

	mu.Lock()
	hang = false
	mu.Unlock()
	require.NoError(t, start().Wait())
	require.NoError(t, start().Wait(), "a part that is complete")

	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{
		"Bearer t1 /v1/orders ", "Bearer t1 /v1/orders b&1", "Bearer t2 /v1/orders b&1", "Bearer t2 /v1/orders b&1",
		"Bearer t2 /v1/orders c", "Bearer t3 /v1/orders c",
	}, asked)
	text, err := os.ReadFile(filepath.Join(dir, "part-03.jsonl"))
	require.NoError(t, err)
	require.Equal(t, "{\"id\":\"-1\"}\n{\"id\":\"-2\"}\n{\"id\":\"b&1-1\"}\n{\"id\":\"b&1-2\"}\n{\"id\":\"c-1\"}\n{\"id\":\"c-2\"}\n", string(text))
}
