//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhatHangsIsKilled: a process of tests that its own timeout does not end is killed, and so
// is the wait for a process that the tests have left behind.
func TestWhatHangsIsKilled(t *testing.T) {
	for _, tt := range []struct {
		script  string
		verdict verdict
		by      string
	}{
		{"echo '=== RUN   TestA'; echo '=== RUN   TestB'; exec sleep 60", killed, "TestB (hangs)"},
		{"exec sleep 60", killed, "a hang"},
		{"echo '=== RUN   TestA'; sleep 5 & exit 0", survived, ""},
		{"echo '--- FAIL: TestA (0s)'; sleep 5 & exit 1", killed, "TestA"},
	} {
		file := filepath.Join(t.TempDir(), "hang.test")
		require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755))
		v, by, err := binary{file: file, pkg: "./a"}.test(t.Context(), "TestA", time.Second)
		require.NoError(t, err, tt.script)
		require.Equal(t, tt.verdict, v, tt.script)
		require.Equal(t, tt.by, by, tt.script)
	}
}
