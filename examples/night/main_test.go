package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/readme"
)

// pages is an API with three pages of two orders in each part. It calls seen for each page, and answers 500 if seen says false.
func pages(t *testing.T, seen func(cursor string) bool) (client *http.Client, host string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursor := r.FormValue("cursor")
		if !seen(cursor) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next := map[string]string{"": "b&1", "b&1": "c", "c": ""}[cursor]
		fmt.Fprintf(w, `{"orders":[{"id":"%s-1"},{"id":"%[1]s-2"}],"next":%q}`, cursor, next)
	}))
	t.Cleanup(server.Close)
	return server.Client(), server.Listener.Addr().String()
}

const rowsOfPart = `{"id":"-1"}
{"id":"-2"}
{"id":"b&1-1"}
{"id":"b&1-2"}
{"id":"c-1"}
{"id":"c-2"}
`

// TestResumes: a job that ends after any page, also in the middle of the rows of the next page, goes on with the page that was not noted,
// and has each row once.
func TestResumes(t *testing.T) {
	for _, tail := range []string{"", `{"id":"c-`, "{\"id\":\"c-1\"}\n{\"id\":\"c-2\"}\n{\"id\":\"an order that was deleted since\"}\n"} {
		t.Chdir(t.TempDir())
		var asked []string
		broken := true
		client, host := pages(t, func(cursor string) bool {
			asked = append(asked, cursor)
			return cursor != "c" || !broken
		})
		require.ErrorContains(t, pull(t.Context(), client, host, 3), "500")
		rows, err := os.OpenFile("part-03.jsonl", os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = rows.WriteString(tail)
		require.NoError(t, err)
		require.NoError(t, rows.Close())

		broken = false
		require.NoError(t, pull(t.Context(), client, host, 3))
		require.NoError(t, pull(t.Context(), client, host, 3), "a part that is complete")
		require.Equal(t, []string{"", "b&1", "c", "c"}, asked)
		text, err := os.ReadFile("part-03.jsonl")
		require.NoError(t, err)
		require.Equal(t, rowsOfPart, string(text))
	}
}

// TestStateIsRead: a state that cannot be read ends the part. Nothing is pulled again over rows that are there.
func TestStateIsRead(t *testing.T) {
	t.Chdir(t.TempDir())
	client, host := pages(t, func(string) bool { panic("nothing is asked") })
	require.NoError(t, os.WriteFile("part-03.state", []byte("{"), 0o600))
	require.Error(t, pull(t.Context(), client, host, 3))
	require.NoError(t, os.Remove("part-03.state"))
	require.NoError(t, os.Mkdir("part-03.state", 0o700))
	require.Error(t, pull(t.Context(), client, host, 3))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, pull(ctx, client, host, 4), context.Canceled)
}

// TestPageHasTheFiles: a company copies the files, so main.go passes go vet by itself, and the page quotes files as they are.
func TestPageHasTheFiles(t *testing.T) {
	files := make(map[string]string)
	for _, name := range []string{"main.go", "policies.yaml", "worker.py"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		files[name] = string(text)
	}
	require.NoError(t, readme.VetProgram(t, files["main.go"]))
	page, err := os.ReadFile("../../docs/use/batch.md")
	require.NoError(t, err)
	_, night, found := strings.Cut(string(page), "\n## A night")
	require.True(t, found)

	for block, name := range map[string]string{"go": "main.go", "yaml": "policies.yaml", "python": "worker.py"} {
		quoted := regexp.MustCompile("(?ms)^```"+block+"\n(.*?)^```").FindAllStringSubmatch(night, -1)
		require.NotEmpty(t, quoted, block)
		for _, q := range quoted {
			require.Contains(t, strings.Join(strings.Fields(files[name]), " "), strings.Join(strings.Fields(q[1]), " "))
		}
	}
	require.NoError(t, exec.CommandContext(t.Context(), "go", "vet", "./api").Run())
}
