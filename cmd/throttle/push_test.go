package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

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
