package redisstore_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// rights is the line of docs/redis.md.
var rights = strings.Fields("+evalsha +eval +time +get +set +getrange +setrange +append +pexpire " +
	"+publish +subscribe +ping ~throttle:* &throttle:*")

// everything does all that a store can do, in two stores of a user with those
// rights. It returns the first error.
func everything(t *testing.T, server *redistest.Server, rights []string) error {
	t.Helper()
	admin := server.Client(t)
	do(t, admin, "FLUSHALL")
	do(t, admin, "SCRIPT", "FLUSH")
	do(t, admin, append([]any{"ACL", "SETUSER", "throttle", "reset", "on", ">sesame-52"}, words(rights)...)...)
	o := server.Options()
	o.Username, o.Password = "throttle", "sesame-52"
	ctx, cancel := context.WithTimeout(t.Context(), inTheEnd)
	defer cancel()
	var stores []*redisstore.Store
	for range 2 {
		client := redis.NewClient(o)
		defer client.Close()
		stores = append(stores, redisstore.New(client, nil))
	}
	for _, s := range stores {
		for _, policy := range []throttle.Policy{
			{Name: "window", Limit: throttle.PerHour(100)},
			{Name: "bucket", Limit: throttle.TokenBucket(100, time.Second, 200)},
			{Name: "flight", Limit: throttle.Concurrency(2)},
		} {
			if err := exercise(ctx, s, policy); err != nil {
				return err
			}
		}
	}
	return nil
}

// exercise does with one policy what can be done.
func exercise(ctx context.Context, s throttle.Store, policy throttle.Policy) error {
	l, err := throttle.NewLimiter(s, policy)
	if err != nil {
		return err
	}
	for range 8 {
		p, err := l.Acquire(ctx, "", 1)
		if err != nil {
			return err
		}
		if err := p.Settle(ctx, 2); err != nil {
			return err
		}
		p.Release()
	}
	if err := l.Pause(ctx, "", 10*time.Millisecond); err != nil {
		return err
	}
	if _, err := l.Status(ctx, ""); err != nil {
		return err
	}
	p, err := l.Acquire(ctx, "", 1)
	if err != nil {
		return err
	}
	p.Release()
	return nil
}

// TestRights: the line suffices. Without one of its rights nothing works, and the
// error says which is missing; or, where the fleet only hears of things later,
// everything does.
func TestRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	require.Contains(t, string(page), strings.Join(rights, " "))
	server := redistest.Single(t)
	require.NoError(t, everything(t, server, rights))
	quiet := []string{"+publish", "+subscribe", "+ping", "&throttle:*"}
	for i, right := range rights {
		t.Run(right, func(t *testing.T) {
			err := everything(t, server, slices.Delete(slices.Clone(rights), i, i+1))
			switch {
			case slices.Contains(quiet, right):
				require.NoError(t, err)
			case right == "~throttle:*":
				require.ErrorContains(t, err, "(it needs ~NAMESPACE:*)")
			default:
				require.Error(t, err, "a right that nothing needs")
				require.Regexp(t, `'`+right[1:]+`'|docs/redis.md lists the commands`, err.Error())
				require.NotContains(t, err.Error(), "sesame-52")
			}
		})
	}
}
