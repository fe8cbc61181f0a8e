package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestCauses: a failure is of one of three kinds.
func TestCauses(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	admin := server.Client(t)
	policy := throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)}
	for _, c := range []struct {
		name  string
		cause outage.Cause
		when  func(o *redis.Options)
	}{
		{"wrong password", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "right", "reset", "on", ">right", "~*", "&*", "+@all")
			o.Username, o.Password = "right", "wrong"
		}},
		{"no such user", outage.Denied, func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong" }},
		{"no scripts", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "weak", "reset", "on", ">weak", "~*", "&*", "+@all", "-evalsha")
			o.Username, o.Password = "weak", "weak"
		}},
		{"no command of a script", outage.Denied, func(o *redis.Options) {
			do(t, admin, "ACL", "SETUSER", "weaker", "reset", "on", ">weak", "~*", "&*", "+@all", "-time")
			o.Username, o.Password = "weaker", "weak"
		}},
		{"another's key", outage.Failed, func(o *redis.Options) {
			o.DB = 3
			client := clientOf(t, o)
			_, err := limiter(t, redisstore.New(client, nil), policy).Acquire(t.Context(), "", 1)
			require.NoError(t, err)
			keys, err := client.Keys(t.Context(), "*:p:*").Result()
			require.NoError(t, err)
			require.Len(t, keys, 1)
			do(t, client, "DEL", keys[0])
			do(t, client, "LPUSH", keys[0], "x")
		}},
		{"nobody there", outage.Away, func(o *redis.Options) { o.Addr = "127.0.0.1:1" }},
	} {
		o := server.Options()
		c.when(o)
		l := limiter(t, redisstore.New(clientOf(t, o), nil), policy)
		ctx := forAtMost(t, inTheEnd)
		if c.cause == outage.Away {
			ctx = throttle.WithMaxWait(ctx, soon)
		}
		_, err := l.Acquire(ctx, "", 1)
		require.Error(t, err, c.name)
		require.Equal(t, c.cause, outage.CauseOf(err), "%s: %v", c.name, err)
	}
}
