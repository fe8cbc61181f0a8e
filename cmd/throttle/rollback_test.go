package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// TestRollbackPrintsNothingRaw: an older file comes from Redis, where somebody may have written
// it by hand. What is wrong in it is printed without what controls a terminal.
func TestRollbackPrintsNothingRaw(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	require.NoError(t, server.Client(t).LPush(t.Context(), "throttle:{fleet}:history",
		`7 1795478559686940 {"text":"version: 1\npolicies:\n  - {name: api, macth: \u202eexample.com/\u009b31m}\n"}`).Err())
	var out, talk bytes.Buffer
	require.Equal(t, exitFound, run(t.Context(), []string{"rollback", "7", "--yes", "--redis", server.URL()}, &out, &talk))
	require.Contains(t, talk.String(), "number 7:3:24: the invisible character U+202E stands here")
	require.Contains(t, talk.String(), "\n    3 |   - {name: api, macth: �example.com/�31m}\n")
}

// TestUnreadableEntriesAreCounted: what stands in the history or the audit and cannot be read
// is not left out in silence.
func TestUnreadableEntriesAreCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	for _, list := range []string{"history", "audit"} {
		require.NoError(t, server.Client(t).LPush(t.Context(), "throttle:{fleet}:"+list, "by hand", `7 1795478559686940 {`).Err())
		var out, talk bytes.Buffer
		require.Equal(t, exitDone, run(t.Context(), []string{list, "--redis", server.URL()}, &out, &talk))
		require.Equal(t, "2 more entries could not be read\n", talk.String())
	}
	var out, talk bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"rollback", "7", "--yes", "--redis", server.URL()}, &out, &talk))
	require.Contains(t, talk.String(), "number 7 is not in the history, of which 2 entries could not be read")
}
