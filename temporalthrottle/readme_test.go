package temporalthrottle_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeCompiles: readers copy the program, so it passes go vet as it stands.
func TestReadmeCompiles(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?ms)^```go\n(package main.*?)^```").FindSubmatch(text)
	require.NotNil(t, program)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, program[1], 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
