package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// chdirFiles works in a folder with the files of [files], for a Redis of its own.
func chdirFiles(t *testing.T) *redistest.Server {
	server := redistest.Single(t)
	t.Setenv(addressVariable, server.URL())
	t.Chdir(t.TempDir())
	for name, text := range files {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return server
}

// TestPushWhoseWaitFails: the number of what was pushed is printed, though it is not known what
// the programs made of it.
func TestPushWhoseWaitFails(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(server *redistest.Server, interrupt func())
		code  int
	}{
		"Redis dies":   {func(server *redistest.Server, _ func()) { server.Kill() }, exitStore},
		"an interrupt": {func(_ *redistest.Server, interrupt func()) { interrupt() }, exitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			server := chdirFiles(t)
			startFollower(t, server)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var out bytes.Buffer
			talk, diagnostics := io.Pipe()
			code := make(chan int)
			go func() {
				defer diagnostics.Close()
				code <- run(ctx, []string{"push", "tight.yaml", "--yes", "--json", "--wait", "1h"}, &out, diagnostics)
			}()
			lines := bufio.NewReader(talk)
			for line := ""; !strings.HasPrefix(line, "number 1 "); {
				var err error
				line, err = lines.ReadString('\n')
				require.NoError(t, err)
			}
			go io.Copy(io.Discard, lines)
			c.fails(server, interrupt)
			require.Equal(t, c.code, <-code)
			var result pushResult
			require.NoError(t, json.Unmarshal(out.Bytes(), &result), out.String())
			require.True(t, result.Pushed)
			require.EqualValues(t, 1, result.Number)
		})
	}
}

// TestPushTooLong: a file that can be followed, and is too long for Redis, is no fault of Redis,
// and is refused before it is asked whether to push it.
func TestPushTooLong(t *testing.T) {
	chdirFiles(t)
	long := files["good.yaml"] + strings.Repeat("# a comment\n", 30_000)
	require.NoError(t, os.WriteFile("long.yaml", []byte(long), 0o600))
	must(t, "check", "long.yaml")
	for _, command := range []string{"push", "diff"} {
		code, out := throttleCommand(t, command, "long.yaml")
		require.Equal(t, exitFound, code, out)
		require.Equal(t, fmt.Sprintf("throttle: long.yaml: the file has %d bytes; 262144 are the most that can be pushed\n", len(long)), out)
	}
}

// TestUnreadablePushedFile: a budget that no program has reported may stand in what is pushed; if
// that cannot be read the command says so.
func TestUnreadablePushedFile(t *testing.T) {
	server := chdirFiles(t)
	must(t, "push", "good.yaml", "--yes", "--wait", "0")
	must(t, "pause", "all", "--for", "1m", "--yes")
	require.NoError(t, server.Client(t).HSet(t.Context(), "throttle:{fleet}:policies", "text", "version: 1\npolicies: 7\n").Err())
	code, out := throttleCommand(t, "pause", "shop", "--for", "1m", "--yes")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "no node has reported a policy or a budget of this name")
	require.Contains(t, out, "and what is pushed cannot be read: pushed:2:11: ")
}

// TestErrorsThatAreNotOfRedis have not the code of Redis.
func TestErrorsThatAreNotOfRedis(t *testing.T) {
	chdirFiles(t)
	must(t, "push", "good.yaml", "--yes", "--wait", "0")
	for _, args := range [][]string{{"pull", "-o", "no/such/folder"}, {"status", "--json"}, {"pull"}, {"audit"}, {"diff", "tight.yaml"}} {
		code := run(t.Context(), args, full{}, new(sink))
		if args[0] == "pull" && len(args) > 1 {
			code, _ = throttleCommand(t, args...)
		}
		require.Equal(t, exitUsage, code, "%v", args)
	}
}

// A full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrInvalid }

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
