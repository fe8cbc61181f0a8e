package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// pieces are what somebody would make a name of who wants another's key, slot or
// channel.
var pieces = []string{
	"", "a", "b", ":", "::", ":5:", "2", "{", "}", "{a}", "{}:", "calls", "calls:", "wake", "wake:", "pause", ":pause",
	"flight", ":flight", "throttle", "throttle:5:", "*", "?", "[a]", " ", "\n", "\r\n", "\x00", "\xff", "\xc3\x28", "ß",
	"AAECAwQFBgcICQoLDA0ODw",
	"%", "%7B", "%25", "%3A", "nodes", ":5:nodes:", ":presence", "db1", "db1:",
}

// forged returns a name of a few pieces.
func forged(r *rand.Rand) (name string) {
	for range r.IntN(5) {
		name += pieces[r.IntN(len(pieces))]
	}
	return name
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
	for range 20_000 {
		ns, group, policy := forged(r), "g"+forged(r), "p"+forged(r)
		tagged, db := r.IntN(2) == 0, r.IntN(len(clients))
		s := redisstore.New(clients[db], &redisstore.Options{Namespace: ns, HashTags: tagged})
		if ns == "" {
			ns = redisstore.DefaultNamespace
		}
		b := throttle.Budget{Policy: policy, Group: group, Key: budgetKeyOf(t, policy, forged(r))}
		if !tagged {
			group = "" // it is not in the names
		}
		is(keys, s.Key(b), "budget", ns, tagged, group, policy, b.Key)
		is(keys, s.LeasesKey(b), "flight", ns, tagged, group, policy, b.Key)
		is(keys, s.RecordKey(b.Group), "record", ns, tagged, b.Group, s.ID())
		is(keys, s.HeartbeatKey(b.Group), "presence", ns, tagged, b.Group)
		is(channels, s.PauseChannel(b.Group), "pauses", ns, tagged, group, db)
		is(channels, s.WakeChannel(b.Group), "wake", ns, tagged, group, db, s.ID())
		for _, name := range []string{s.Key(b), s.LeasesKey(b), s.RecordKey(b.Group), s.HeartbeatKey(b.Group), s.PauseChannel(b.Group), s.WakeChannel(b.Group)} {
			require.Equal(t, s.Tag(b.Group), hashTag(name), "%q", name)
		}
	}
	require.Greater(t, len(keys), 40_000)
}

// TestP14_NamesCannotHoldOthers: what looks like the end of one key is a part of
// another's name.
func TestP14_NamesCannotHoldOthers(t *testing.T) {
	t.Parallel()
	in := func(namespace string) *redisstore.Store {
		return redisstore.New(&redis.Client{}, &redisstore.Options{Namespace: namespace})
	}
	require.Equal(t, "a:5:nodes:api.example.com:presence", in("a").HeartbeatKey("api.example.com"))
	require.NotEqual(t, in("a").HeartbeatKey("x:5:nodes:y"), in("a:5:nodes:x").HeartbeatKey("y"))
	require.NotEqual(t, in("{").HeartbeatKey("y"), in("%7B").HeartbeatKey("y"))
	s := in("a")
	require.True(t, strings.HasSuffix(s.RecordKey("x:5:calls:y"), s.ID()+":x%3A5%3Acalls%3Ay"))
}

// budgetKeyOf is what a program makes of a policy's name and a key.
func budgetKeyOf(t *testing.T, policy, key string) [16]byte {
	t.Helper()
	s := &noted{}
	l, err := throttle.NewLimiter(s, throttle.Policy{Name: policy, Limit: throttle.PerSecond(1)})
	require.NoError(t, err)
	_, err = l.Status(t.Context(), key)
	require.NoError(t, err)
	return s.charge.Budget.Key
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

// A noted store notes the charge that it is asked about.
type noted struct {
	throttle.Store
	charge throttle.Charge
}

func (s *noted) Status(_ context.Context, c throttle.Charge) (throttle.Status, error) {
	s.charge = c
	return throttle.Status{}, nil
}
