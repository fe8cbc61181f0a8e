package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// scriptHook is called around each script call, with its keys.
type scriptHook func(keys []string, call func() error) error

func (scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if name := cmd.Name(); name != "eval" && name != "evalsha" {
			return next(ctx, cmd)
		}
		var keys []string
		for _, key := range args[3 : 3+args[2].(int)] {
			keys = append(keys, key.(string))
		}
		err := h(keys, func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

// TestNoteIsStoredFirst: a budget whose note cannot be stored is not closed, so nobody meets
// a pause without a reason.
func TestNoteIsStoredFirst(t *testing.T) {
	server := redistest.Shared(t)
	all := must(fleet.New(server.Client(t), fleet.Options{}))
	cut := server.Client(t)
	cut.AddHook(scriptHook(func(keys []string, call func() error) error {
		if slices.Contains(keys, all.PausesKey()) {
			return errors.New("cut")
		}
		return call()
	}))
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	require.Error(t, must(fleet.New(cut, fleet.Options{})).Pause(t.Context(), target, time.Hour, "anna", "why"))
	state, note, err := all.State(t.Context(), target)
	require.NoError(t, err)
	require.Zero(t, state.Paused)
	require.Nil(t, note)
}

// TestNotesOutliveShorterOnes: the notes are kept until the last pause ends, whichever was
// noted last.
func TestNotesOutliveShorterOnes(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	for key, d := range map[string]time.Duration{"long": 20 * time.Hour, "short": time.Minute} {
		target := find(t, all, fleet.Query{Name: "shop", Key: key, Table: []throttle.Policy{shop}})
		require.NoError(t, all.Pause(t.Context(), target, d, "anna", key))
	}
	again := find(t, all, fleet.Query{Name: "shop", Key: "third", Table: []throttle.Policy{shop}})
	require.NoError(t, all.Pause(t.Context(), again, time.Second, "anna", "third"))
	require.Greater(t, client.TTL(t.Context(), all.PausesKey()).Val(), 19*time.Hour)
	require.LessOrEqual(t, client.TTL(t.Context(), all.PausesKey()).Val(), 21*time.Hour)
}

// TestPushIsMadeOnce: a push whose reply is lost is made again by the client, and counts
// once.
func TestPushIsMadeOnce(t *testing.T) {
	server := redistest.Shared(t)
	all := must(fleet.New(server.Client(t), fleet.Options{}))
	lossy := server.Client(t)
	lossy.AddHook(scriptHook(func(keys []string, call func() error) error {
		if err := call(); err != nil || !slices.Contains(keys, all.PoliciesKey()) {
			return err
		}
		return call()
	}))
	number, err := must(fleet.New(lossy, fleet.Options{})).Push(t.Context(), 0, fleet.Pushed{Text: []byte("version: 1")}, "push")
	require.NoError(t, err)
	require.EqualValues(t, 1, number)
	history, _, err := all.History(t.Context())
	require.NoError(t, err)
	require.Len(t, history, 1)
}
