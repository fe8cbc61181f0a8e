package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestCheckPrintsNothingRaw: the name of a file is somebody else's, as in a change that is
// checked before it is merged. What stands in it controls no terminal.
func TestCheckPrintsNothingRaw(t *testing.T) {
	file := filepath.Join(t.TempDir(), "caf\xe9\x1b[31m.yaml")
	require.NoError(t, os.WriteFile(file, []byte("version: 1\npolicies:\n  - {name: a, match: /, limit: 1/s}\n"), 0o600))
	for text, code := range map[string]int{"version: 1\npolicies:\n  - {name: a, match: /, limit: 1/s}\n": exitDone, "version: 2\n": exitFound} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		var out, talk bytes.Buffer
		require.Equal(t, code, run(t.Context(), []string{"check", file}, &out, &talk))
		require.Contains(t, out.String(), `caf\xe9\x1b[31m.yaml:`)
		require.NotContains(t, out.String(), "\x1b")
	}
}

// TestCheckOnAFullDisk: what could not be written is an error.
func TestCheckOnAFullDisk(t *testing.T) {
	var talk bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"check", "../../policyfile/testdata/good.yaml"}, full{}, &talk))
}

// TestStdinIsNamedOnce: who reads stdin second would find it empty, and take that for an empty file.
func TestStdinIsNamedOnce(t *testing.T) {
	for _, args := range [][]string{{"check", "-", "-"}, {"simulate", "-", "-"}, {"plan", "-", "--mix", "-"}} {
		root := newRoot()
		root.SetIn(strings.NewReader("version: 1\npolicies:\n  - {name: a, match: /, limit: 1/s}\n"))
		var out, talk bytes.Buffer
		require.Equal(t, exitUsage, execute(t.Context(), root, args, &out, &talk), "%v", args)
		require.Equal(t, "throttle: stdin is read once, and 2 arguments name it\n", talk.String())
	}
}

// TestExplainNamesTheMethod: a method that is none is not taken for a mistake in the URL.
func TestExplainNamesTheMethod(t *testing.T) {
	var out, talk bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"explain", "../../policyfile/testdata/good.yaml", "GE T", "https://a.com/"}, &out, &talk))
	require.Equal(t, "throttle: \"GE T\" is not a method such as GET\n", talk.String())
}

// TestRefusedConnectionsAreTold: the client dials once for each attempt, so the cause is known
// before the timeout ends.
func TestRefusedConnectionsAreTold(t *testing.T) {
	for _, scheme := range []string{"redis", "redis+cluster", "redis+sentinel"} {
		s := server{address: scheme + "://127.0.0.1:1?master_name=main"}
		if scheme != "redis+sentinel" {
			s.address = scheme + "://127.0.0.1:1"
		}
		client, err := s.connect()
		require.NoError(t, err)
		defer client.Close()
		retries := 0
		switch c := client.(type) {
		case *redis.Client:
			retries = c.Options().DialerRetries
		case *redis.ClusterClient:
			retries = c.Options().DialerRetries
		}
		require.Equal(t, 1, retries, scheme)
	}
}
