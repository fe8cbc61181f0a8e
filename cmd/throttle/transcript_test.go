package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block finds a file, with its name before it, or a transcript.
var block = regexp.MustCompile("(?s)(?:`([^`\n]+)`:\n\n)?```(yaml|csv|console)\n(.*?)```")

// A transcript replays pages: their files are written, and their commands run, where the test
// stands.
type transcript struct {
	*testing.T
	code int // of the last command
}

// replay returns the page with what its commands print.
func (r *transcript) replay(page string) string {
	r.Helper()
	return block.ReplaceAllStringFunc(page, func(text string) string {
		m := block.FindStringSubmatch(text)
		if m[2] != "console" {
			require.NoError(r, os.WriteFile(m[1], []byte(m[3]), 0o644))
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
				fmt.Fprintln(&all, r.code)
				continue
			}
			if set, ok := strings.CutPrefix(command, "export "); ok {
				name, value, _ := strings.Cut(set, "=")
				r.Setenv(name, os.ExpandEnv(value))
				continue
			}
			var out bytes.Buffer
			args := strings.Fields(os.ExpandEnv(command))
			require.Equal(r, "throttle", args[0])
			r.code = run(r.Context(), args[1:], &out, &out)
			all.Write(out.Bytes())
		}
		return "```console\n" + all.String() + "```"
	})
}

// samePage requires that a page is what was replayed, or writes it if $UPDATE says so. What a
// pattern matches may differ; nil: nothing may.
func samePage(t *testing.T, path, page, replayed string, except *regexp.Regexp) {
	t.Helper()
	if except != nil {
		old := except.FindAllString(page, -1)
		replayed = except.ReplaceAllStringFunc(replayed, func(text string) string {
			if len(old) > 0 {
				text, old = old[0], old[1:]
			}
			return text
		})
	}
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(replayed), 0o644))
		return
	}
	require.Equal(t, page, replayed)
}
