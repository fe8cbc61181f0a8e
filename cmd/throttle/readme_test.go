package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// block finds a file, with its name before it, or a transcript.
var block = regexp.MustCompile("(?s)(?:`([^`\n]+)`:\n\n)?```(yaml|console)\n(.*?)```")

// TestReadme replays README: its files are written, its commands run, and what they print
// is what stands there.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	path, err := filepath.Abs("README.md")
	require.NoError(t, err)
	t.Setenv("REDIS_URL", "redis://"+redistest.Single(t).Addr)
	t.Chdir(t.TempDir())
	code := 0
	replayed := block.ReplaceAllStringFunc(string(readme), func(text string) string {
		m := block.FindStringSubmatch(text)
		if m[2] == "yaml" {
			require.NoError(t, os.WriteFile(m[1], []byte(m[3]), 0o644))
			return text
		}
		var all strings.Builder
		for line := range strings.Lines(m[3]) {
			command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
			if !ok {
				continue
			}
			fmt.Fprintf(&all, "$ %s\n", command)
			if command == "echo $?" {
				fmt.Fprintln(&all, code)
				continue
			}
			var out bytes.Buffer
			args := strings.Fields(os.ExpandEnv(command))
			require.Equal(t, "throttle", args[0])
			code = run(t.Context(), args[1:], &out, &out)
			all.Write(out.Bytes())
		}
		return "```console\n" + all.String() + "```"
	})
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(replayed), 0o644))
		return
	}
	require.Equal(t, string(readme), replayed)
}
