package redisstore_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	lua "github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// rightsPage has a line of rights for each kind of user.
const rightsPage = "../docs/redis.md"

// A user is what its clients ask of Redis: the commands that they send by themselves, and
// the scripts that they run.
type user struct {
	sends   string
	scripts []lua.Script
	reads   bool   // it may run of its scripts only what writes and publishes nothing
	rest    string // what else its line says
}

// usersOfThePage returns them by name.
func usersOfThePage(t *testing.T) map[string]user {
	const run, look = "evalsha eval ping ", "time mget zrange hgetall hmget lrange "
	const all, none = "~throttle:* &throttle:*", "~throttle:* resetchannels"
	store, fleet := scriptsIn(t, "internal/wire/lua/*.lua"), scriptsIn(t, "fleet/*.lua")
	describe := []lua.Script{lua.StatusScript, lua.SlotsStatusScript}
	act := append(scriptsIn(t, "fleet/*note.lua", "fleet/push.lua", "fleet/act.lua"), lua.PauseScript, lua.SlotsPauseScript, lua.SetUsedScript)
	beat := scriptsIn(t, "fleet/beat.lua")
	require.Len(t, fleet, len(beat)+4, "a script of package fleet that no user runs")
	return map[string]user{
		"throttle": {run + "publish subscribe", store, false, all},
		"reporter": {run + "publish subscribe hmget", slices.Concat(store, beat), false, all},
		"watcher":  {run + look, describe, true, none},
		"operator": {run + look, slices.Concat(describe, act), false, all},
	}
}

// scriptsIn returns the files that match as scripts.
func scriptsIn(t *testing.T, patterns ...string) (all []lua.Script) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all = append(all, lua.Script{Source: string(text)})
		}
	}
	return all
}

// commandsOf returns what a script calls, and fails for a call whose command cannot be read
// from its line.
func commandsOf(t *testing.T, s lua.Script) (all []string) {
	for i, line := range strings.Split(s.Source, "\n") {
		command := s.CalledAt(i + 1)
		calls := strings.Count(line, "redis.call") + strings.Count(line, "redis.pcall")
		require.Equal(t, command != "", calls == 1, line)
		require.LessOrEqual(t, calls, 1, line)
		if command != "" {
			all = append(all, strings.ToLower(command))
		}
	}
	return all
}

// TestRights_AreWhatIsCalled: each line of the page has the rights to what its user's clients
// send and what their scripts call, no more and no fewer.
func TestRights_AreWhatIsCalled(t *testing.T) {
	t.Parallel()
	known, err := redistest.Shared(t).Client(t).Command(t.Context()).Result()
	require.NoError(t, err)
	writes := func(command string) bool {
		flags := known[command].Flags
		return slices.Contains(flags, "write") || slices.Contains(flags, "pubsub")
	}
	for name, u := range usersOfThePage(t) {
		want := strings.Fields(u.sends)
		for _, s := range u.scripts {
			want = append(want, slices.DeleteFunc(commandsOf(t, s), func(c string) bool { return u.reads && writes(c) })...)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for i := range want {
			want[i] = "+" + want[i]
		}
		require.ElementsMatch(t, append(want, strings.Fields(u.rest)...), redistest.Rights(t, rightsPage, name), name)
	}
}

// rightsBeside returns the rights that the table of the page adds where the text in its second column
// says so.
func rightsBeside(t *testing.T, where string) []string {
	text, err := os.ReadFile(rightsPage)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.ReplaceAll(line, `\|`, "¦"), "|"); len(cells) == 4 && strings.Contains(cells[2], where) {
			return strings.Fields(strings.ReplaceAll(strings.Trim(cells[1], " `"), "¦", "|"))
		}
	}
	require.Fail(t, "the page has no such row", where)
	return nil
}

// denials returns what a server has denied since it started, by ACL LOG. Since 7.2 that has
// what go-redis says of itself on each connection, too.
func denials(t *testing.T, admin redis.UniversalClient) (all []string) {
	entries, err := admin.(*redis.Client).ACLLog(t.Context(), 128).Result()
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client|") {
			all = append(all, e.Username+" "+e.Reason+" "+e.Object)
		}
	}
	return all
}
