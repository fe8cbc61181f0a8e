package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPrelude: a script begins with the shared constants that it uses, and no others.
func TestPrelude(t *testing.T) {
	require.Equal(t, "local STALL = 50000\nlocal TOKEN_BUCKET = 4\n",
		prelude("return kind == TOKEN_BUCKET and STALL or MY_STEADY"))
	require.Empty(t, prelude("return 1"))
}

// TestScripts: every file of lua/ is part of a script.
func TestScripts(t *testing.T) {
	entries, err := files.ReadDir("lua")
	require.NoError(t, err)
	for _, e := range entries {
		text, err := files.ReadFile("lua/" + e.Name())
		require.NoError(t, err)
		found := false
		for _, s := range []Script{BookScript, PauseScript, StatusScript, ReconcileScript, ClosedScript, HeartbeatScript, FlightPauseScript, FlightStatusScript} {
			found = found || strings.Contains(s.Source, string(text))
		}
		require.True(t, found, e.Name())
	}
}
