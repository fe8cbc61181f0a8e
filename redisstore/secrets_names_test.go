package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// pieces are what somebody would make a name of who wants another's key, slot or
// channel.
var pieces = []string{
	"", "a", "b", ":", "::", ":7:", "2", "{", "}", "{a}", "{}:", "calls", "calls:", "wake", "wake:", "pause", ":pause",
	"flight", ":flight", "throttle", "throttle:7:", "*", "?", "[a]", " ", "\n", "\r\n", "\x00", "\xff", "\xc3\x28", "ß",
	"AAECAwQFBgcICQoLDA0ODw",
	"%", "%7B", "%25", "%3A", "nodes", ":7:nodes:", ":presence", "db1", "db1:",
}

// forged returns a name of a few pieces.
func forged(r *rand.Rand) (name string) {
	for range r.IntN(5) {
		name += pieces[r.IntN(len(pieces))]
	}
	return name
}

// printable drops what no policy's name may hold.
func printable(c rune) rune {
	if unicode.IsPrint(c) {
		return c
	}
	return -1
}

// TestP14_NamesCannotForgeKeys makes namespaces, groups, policies and keys of what
// keys and channels are made of. No two things share a name in Redis, and in a
// cluster nothing leaves its group's slot.
func TestP14_NamesCannotForgeKeys(t *testing.T) {
	t.Parallel()
	const seed = 5
	r := rand.New(rand.NewPCG(seed, seed))
	keys, channels := make(map[string]string), make(map[string]string)
	is := func(names map[string]string, name string, meaning ...any) {
		what := fmt.Sprintf("%q", meaning)
		if old, ok := names[name]; ok {
			require.Equal(t, old, what, "%q stands for both", name)
		}
		names[name] = what
	}
	var clients [3]*redis.Client // which dial nobody
	for db := range clients {
		clients[db] = redis.NewClient(&redis.Options{DB: db})
		t.Cleanup(func() { require.NoError(t, clients[db].Close()) })
	}
	many := soak.Most(20_000, 2_000)
	for range many {
		ns, group, policy := forged(r), "g"+forged(r), "p"+strings.Map(printable, forged(r))
		tagged, db := r.IntN(2) == 0, r.IntN(len(clients))
		s := redisstore.New(clients[db], redisstore.Options{Namespace: ns, HashTags: tagged})
		if s.Traits().Err != nil {
			continue // the namespace is refused: see TestWrongOptions
		}
		if ns == "" {
			ns = redisstore.DefaultNamespace
		}
		b := store.BudgetOf(policy, forged(r))
		b.Group = group
		is(keys, s.Key(b), "budget", ns, tagged, policy, b.Key)
		is(keys, s.LeasesKey(b), "flight", ns, tagged, policy, b.Key)
		is(keys, s.RecordKey(group), "record", ns, tagged, group, s.ID())
		is(keys, s.HeartbeatKey(group), "presence", ns, tagged, group)
		is(channels, s.PauseChannel(), "pauses", ns, tagged, db)
		is(channels, s.WakeChannel(), "wake", ns, tagged, db, s.ID())
		for _, name := range []string{s.Key(b), s.LeasesKey(b), s.RecordKey(group), s.HeartbeatKey(group), s.PauseChannel(), s.WakeChannel()} {
			require.Equal(t, s.Tag(), hashTag(name), "%q", name)
		}
	}
	require.Greater(t, len(keys), 2*many)
}

// TestP14_NamesCannotHoldOthers: what looks like the end of one key is a part of
// another's name.
func TestP14_NamesCannotHoldOthers(t *testing.T) {
	t.Parallel()
	in := func(namespace string) *redisstore.Store {
		return redisstore.New(&redis.Client{}, redisstore.Options{Namespace: namespace})
	}
	require.Equal(t, "a:7:nodes:api.example.com:presence", in("a").HeartbeatKey("api.example.com"))
	require.NotEqual(t, in("a").HeartbeatKey("x:7:nodes:y"), in("a:7:nodes:x").HeartbeatKey("y"))
	require.NotEqual(t, in("{").HeartbeatKey("y"), in("%7B").HeartbeatKey("y"))
	s := in("a")
	require.True(t, strings.HasSuffix(s.RecordKey("x:7:calls:y"), s.ID()+":x%3A7%3Acalls%3Ay"))
}

// hashTag is what a cluster takes the slot of.
func hashTag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return ""
}

// listening has a store wait for a start, so that it listens, and returns the
// watch and what it tells.
func listening(t *testing.T, s *redisstore.Store, c store.Charge) (store.Watch, chan struct{}) {
	t.Helper()
	require.Zero(t, book(t, s, c))
	b := booking(c)
	g := ask(t, s, b)
	require.Positive(t, g.Wait)
	news := make(chan struct{}, 1)
	w := s.Watch(b, g, news)
	t.Cleanup(func() {
		w.Stop()
		s.Cancel(b, g)
	})
	require.Eventually(t, func() bool {
		ok, err := w.Confirm(t.Context(), -1)
		return err == nil && ok && s.Complete(time.Now())
	}, 30*time.Second, time.Millisecond)
	return w, news
}

// TestForgedMessages says on a store's channels what no script says. Whoever can
// do that can stall a budget for as long as the longest penalty: nobody panics,
// and no longer.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	s := redisstore.New(client, redisstore.Options{Namespace: server.Namespace})
	waits, idle := charge("waits", store.PerMinute(1)), charge("idle", store.PerMinute(1))
	listening(t, s, waits)

	key := s.Key(waits.Budget)
	long := strings.Repeat("9", 400)
	for _, text := range []string{
		"", " ", "  ", "~", "~x", "~-1", "~" + long, "~9223372036854775807", "-1 -1 " + key, "0 0", "1", "1 2", "x y " + key,
		long + " " + long + " " + key, "9223372036854775807 9223372036854775807 ", "-9223372036854775808 -9223372036854775808 " + key,
		"anew ", "anew 1 2", "anew -1 9223372036854775807 " + key, "anew " + long + " " + long + " " + key, strings.Repeat(",", 1<<16) + " " + key, strings.Repeat("1,", 1<<16) + " " + s.LeasesKey(waits.Budget),
		"\x00\xff", strings.Repeat("x", 1<<20),
	} {
		for _, channel := range []string{s.PauseChannel(), s.WakeChannel()} {
			require.NoError(t, client.Publish(t.Context(), channel, text).Err())
		}
	}
	// The worst: a century for a budget that Redis knows nothing of.
	century := int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	forged := fmt.Sprintf("%d %d %s", time.Now().UnixMicro()+century, century, s.Key(idle.Budget))
	require.NoError(t, client.Publish(t.Context(), s.PauseChannel(), forged).Err())
	require.Eventually(t, func() bool { return s.Closed(s.Key(idle.Budget)) > 0 }, 30*time.Second, time.Millisecond)
	require.LessOrEqual(t, s.Closed(s.Key(idle.Budget)), store.MaxPenalty)
	g := ask(t, s, booking(idle))
	require.LessOrEqual(t, g.Wait, store.MaxPenalty)
	require.True(t, g.Paused)
	s.Cancel(booking(idle), g)
}

// TestDatabasesAreApart pauses budgets in one database of a server. They are not
// closed in another, where nobody may take that for news of its own.
func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	here, there := redistest.Shared(t), redistest.Shared(t)
	require.Equal(t, here.Addr, there.Addr)
	s, neighbour := redisstore.New(here.Client(t), redisstore.Options{}), redisstore.New(here.Client(t), redisstore.Options{})
	other := redisstore.New(there.Client(t), redisstore.Options{})
	waits, idle, last := charge("waits", store.PerMinute(1)), charge("idle", store.PerMinute(1)), charge("last", store.PerMinute(1))
	_, news := listening(t, s, waits)
	require.NoError(t, other.Pause(t.Context(), idle, time.Hour))
	require.NoError(t, other.Pause(t.Context(), waits, time.Hour))

	require.NoError(t, neighbour.Pause(t.Context(), last, time.Hour))
	require.Eventually(t, func() bool { return s.Closed(s.Key(last.Budget)) > 0 }, 30*time.Second, time.Millisecond,
		"it is heard after all that was said before")
	require.Empty(t, news)
	require.Negative(t, s.Closed(s.Key(idle.Budget)))
	require.Negative(t, s.Closed(s.Key(waits.Budget)))
	require.Zero(t, book(t, s, idle))
}
