package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// TestReadme replays README: its files are written, its commands run, and what they print
// is what stands there.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	path, err := filepath.Abs("README.md")
	require.NoError(t, err)
	t.Setenv("REDIS_URL", "redis://"+redistest.Single(t).Addr)
	recording, err := os.ReadFile(outage)
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("outage.jsonl", recording, 0o644))
	r := &transcript{T: t}
	samePage(t, path, string(readme), r.replay(string(readme)), nil)
}
