package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// TestErrorsOfRedis: an error of Redis, or of the way to it, is told apart from a mistake of the caller.
func TestErrorsOfRedis(t *testing.T) {
	all := must(fleet.New(redistest.Shared(t).Client(t), fleet.Options{}))
	table := []throttle.Policy{{Name: "a", Limit: store.PerSecond(1)}}
	target, err := all.Find(t.Context(), fleet.Query{Name: "a", Table: table})
	require.NoError(t, err)
	var away *fleet.Error

	_, err = all.Find(t.Context(), fleet.Query{Name: "b"})
	require.Error(t, err)
	require.NotErrorAs(t, err, &away)
	_, err = all.Push(t.Context(), 0, fleet.Pushed{Text: make([]byte, fleet.MostText+1)}, "push")
	require.Error(t, err)
	require.NotErrorAs(t, err, &away)

	ctx, stop := context.WithCancel(t.Context())
	stop()
	for name, ask := range map[string]func(context.Context) error{
		"Nodes":    func(ctx context.Context) error { _, err := all.Nodes(ctx); return err },
		"Snapshot": func(ctx context.Context) error { _, err := all.Snapshot(ctx, 0); return err },
		"Audit":    func(ctx context.Context) error { _, _, err := all.Audit(ctx, 1); return err },
		"History":  func(ctx context.Context) error { _, _, err := all.History(ctx); return err },
		"Pull":     func(ctx context.Context) error { _, err := all.Pull(ctx); return err },
		"Push":     func(ctx context.Context) error { _, err := all.Push(ctx, 0, fleet.Pushed{}, "push"); return err },
		"State":    func(ctx context.Context) error { _, _, err := all.State(ctx, target); return err },
		"Pause":    func(ctx context.Context) error { return all.Pause(ctx, target, 1, "anna", "") },
		"Reset":    func(ctx context.Context) error { return all.Reset(ctx, target, "anna", "") },
	} {
		require.ErrorAs(t, ask(ctx), &away, name)
	}
}

// TestNobodyWaitsForEver: a call whose context has no deadline ends, though Redis is gone.
func TestNobodyWaitsForEver(t *testing.T) {
	server := redistest.Single(t)
	p := throttle.Policy{Name: "a", Limit: store.PerSecond(1)}
	_, _, all := used(t, server.Client(t), p, "")
	target, err := all.Find(t.Context(), fleet.Query{Name: "a", Table: []throttle.Policy{p}})
	require.NoError(t, err)
	server.Kill()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer time.Sleep(time.Minute) // until go-redis notices that nobody wants its connections any more
		defer client.Close()
		all := must(fleet.New(client, fleet.Options{}))
		for name, ask := range map[string]func() error{
			"Snapshot": func() error { _, err := all.Snapshot(context.Background(), 0); return err },
			"State":    func() error { _, _, err := all.State(context.Background(), target); return err },
			"Pause":    func() error { return all.Pause(context.Background(), target, time.Minute, "anna", "") },
			"Resume":   func() error { return all.Resume(context.Background(), target, "anna", "") },
			"Reset":    func() error { return all.Reset(context.Background(), target, "anna", "") },
			"SetUsed":  func() error { _, err := all.SetUsed(context.Background(), target, 1, "anna", ""); return err },
		} {
			begin := time.Now()
			var away *fleet.Error
			require.ErrorAs(t, ask(), &away, name)
			require.LessOrEqual(t, time.Since(begin), 11*time.Second, name)
		}
	})
}

// TestWrongOptions: options that nobody can mean are refused, all of them at once, and nothing is started.
func TestWrongOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	for _, c := range []struct {
		client redis.UniversalClient
		around store.Store
		o      fleet.ReporterOptions
		wrong  []string
	}{
		{nil, memstore.New(), fleet.ReporterOptions{}, []string{"redisstore: client: is nil"}},
		{client, nil, fleet.ReporterOptions{}, []string{"fleet: store: is nil"}},
		{client, redisstore.New(client, redisstore.Options{Namespace: "shop"}), fleet.ReporterOptions{Namespace: "throttle"}, []string{`fleet: ReporterOptions.Namespace: "throttle" is not that of the store, "shop"`}},
		{client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Namespace: "shop"}, []string{`"shop" is not that of the store, "throttle"`}},
		{client, redisstore.New(client, redisstore.Options{Outage: 9}), fleet.ReporterOptions{}, []string{"redisstore: Options.Outage: 9 is unknown"}},
		{client, memstore.New(), fleet.ReporterOptions{Interval: 5}, []string{"fleet: ReporterOptions.Interval: 5ns is too short"}},
		{client, memstore.New(), fleet.ReporterOptions{Interval: -time.Hour}, []string{"fleet: ReporterOptions.Interval: -1h0m0s is too short"}},
		{nil, nil, fleet.ReporterOptions{Namespace: "shop\n", Interval: 1}, []string{"redisstore: client", "redisstore: Options.Namespace", "fleet: store", "fleet: ReporterOptions.Interval"}},
	} {
		r, err := fleet.Start(c.client, c.around, c.o)
		require.Nil(t, r)
		require.ErrorAs(t, err, new(*store.OptionError))
		for _, wrong := range c.wrong {
			require.ErrorContains(t, err, wrong)
		}
	}

	_, err := fleet.New(nil, fleet.Options{Namespace: "shop\n"})
	require.ErrorContains(t, err, "redisstore: client")
	require.ErrorContains(t, err, "redisstore: Options.Namespace")
}

// A teller is a store that would tell of pauses.
type teller struct {
	store.Store
	told bool // somebody wants to be told
}

func (s *teller) OnPause(tell func()) { s.told = tell != nil }

// TestCloseOnceMore: a second Close takes nothing from the next reporter around the store.
func TestCloseOnceMore(t *testing.T) {
	client, s := redistest.Shared(t).Client(t), &teller{Store: memstore.New()}
	first := must(fleet.Start(client, s, fleet.ReporterOptions{Interval: time.Hour}))
	require.True(t, s.told)
	first.Close()
	require.False(t, s.told)
	next := must(fleet.Start(client, s, fleet.ReporterOptions{Interval: time.Hour}))
	first.Close()
	require.True(t, s.told)
	next.Close()
	require.False(t, s.told)
}

// TestNamespaceIsThatOfTheStore: a reporter without a Namespace reports in the namespace of its store.
func TestNamespaceIsThatOfTheStore(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{Namespace: "shop"})
	r, err := fleet.Start(client, s, fleet.ReporterOptions{Program: "till", Interval: time.Hour})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	all, err := fleet.New(client, fleet.Options{Namespace: "shop"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		nodes, err := all.Nodes(t.Context())
		require.NoError(t, err)
		return len(nodes) == 1 && nodes[0].Program == "till"
	}, time.Minute, time.Millisecond)
}

// scriptHook is called around each script call, with its keys.
type scriptHook func(keys []string, call func() error) error

func (scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements [redis.Hook].
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

// repeating returns a client that makes each call of a script with a key twice, as a client does that has lost the reply.
func repeating(t *testing.T, server *redistest.Server, key string) redis.UniversalClient {
	lossy := server.Client(t)
	lossy.AddHook(scriptHook(func(keys []string, call func() error) error {
		if err := call(); err != nil || !slices.Contains(keys, key) {
			return err
		}
		return call()
	}))
	return lossy
}

// TestOffIsTurnedOnce: a command whose reply is lost is made again by the client, and counts once.
func TestOffIsTurnedOnce(t *testing.T) {
	server := redistest.Shared(t)
	all := must(fleet.New(server.Client(t), fleet.Options{}))
	lossy := must(fleet.New(repeating(t, server, all.AuditKey()), fleet.Options{}))

	off, was, err := lossy.TurnOff(t.Context(), time.Hour, "anna", "")
	require.NoError(t, err)
	require.False(t, was, "it was on")
	now, err := all.Switch(t.Context())
	require.NoError(t, err)
	require.Equal(t, &off, now)

	_, was, err = lossy.TurnOn(t.Context(), "anna", "")
	require.NoError(t, err)
	require.True(t, was, "it was off")
	acts, _, err := all.Audit(t.Context(), 9)
	require.NoError(t, err)
	require.Len(t, acts, 2)
}

// TestPushIsMadeOnce: a push whose reply is lost is made again by the client, and counts
// once.
func TestPushIsMadeOnce(t *testing.T) {
	server := redistest.Shared(t)
	all := must(fleet.New(server.Client(t), fleet.Options{}))
	lossy := repeating(t, server, all.PoliciesKey())
	number, err := must(fleet.New(lossy, fleet.Options{})).Push(t.Context(), 0, fleet.Pushed{Text: []byte("version: 1")}, "push")
	require.NoError(t, err)
	require.EqualValues(t, 1, number)
	history, _, err := all.History(t.Context())
	require.NoError(t, err)
	require.Len(t, history, 1)
}

// TestP8_PauseIsMadeOnce: a pause whose replies are lost is made again by the client, and counts once.
func TestP8_PauseIsMadeOnce(t *testing.T) {
	server := redistest.Shared(t)
	all := must(fleet.New(server.Client(t), fleet.Options{}))
	lossy := must(fleet.New(repeating(t, server, all.AuditKey()), fleet.Options{}))
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	require.NoError(t, lossy.Pause(t.Context(), target, time.Hour, "anna", "why"))
	require.NoError(t, lossy.Resume(t.Context(), target, "anna", ""))
	acts, _, err := all.Audit(t.Context(), 9)
	require.NoError(t, err)
	require.Len(t, acts, 2)
}

// TestP8_LostReplyOfANote: the reply of storing a pause's note is lost, so the budget is not closed: the note before comes back, and the
// audit knows no pause but one that failed. While Redis stays away afterwards, the audit knows nothing.
func TestP8_LostReplyOfANote(t *testing.T) {
	for name, x := range map[string]struct {
		away    bool // for the rest of the test
		earlier bool // there is a shorter pause
	}{"once": {}, "a pause holds": {earlier: true}, "away": {away: true}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Shared(t)
			all := must(fleet.New(server.Client(t), fleet.Options{}))
			target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
			if x.earlier {
				require.NoError(t, all.Pause(t.Context(), target, time.Minute, "ben", "the first"))
			}

			stored, lost := "", errors.New("cut")
			client, isLost := server.Client(t), false
			client.AddHook(scriptHook(func(keys []string, call func() error) error {
				switch {
				case !slices.Contains(keys, all.PausesKey()), isLost && !x.away:
					return call()
				case isLost:
					return lost
				}

				// With an earlier note the first round only finds it.
				require.NoError(t, call())
				notes := server.Client(t).HVals(t.Context(), all.PausesKey()).Val()
				if len(notes) == 1 {
					stored = notes[0]
				}
				if strings.Contains(stored, "anna") {
					isLost = true
					return lost
				}
				return nil
			}))
			require.ErrorContains(t, must(fleet.New(client, fleet.Options{})).Pause(t.Context(), target, time.Hour, "anna", "why"), "cut")
			require.Contains(t, stored, "anna")

			acts, _, err := all.Audit(t.Context(), 9)
			require.NoError(t, err)
			state, note, err := all.State(t.Context(), target)
			require.NoError(t, err)
			switch {
			case x.away:
				require.Empty(t, acts)
			case x.earlier:
				require.Len(t, acts, 2)
				require.True(t, acts[0].Failed)
				require.Equal(t, "the first", note.Reason)
			default:
				require.Len(t, acts, 1)
				require.True(t, acts[0].Failed)
				require.Zero(t, state.Paused)
				require.NoError(t, all.Pause(t.Context(), target, time.Minute, "anna", "a shorter one"))
			}
		})
	}
}

// TestP8_NoteThatComesLate: Redis stands still when a pause's note is stored. The note comes when the operator has left, and is not stored.
func TestP8_NoteThatComesLate(t *testing.T) {
	server := redistest.Shared(t)
	all := must(fleet.New(server.Client(t), fleet.Options{}))
	proxy := redistest.NewProxy(t, server)
	o := proxy.Options()
	o.ReadTimeout, o.MaxRetries = 500*time.Millisecond, -1
	client := newClient(t, o)
	target := find(t, all, fleet.Query{Name: "shop", Key: "acme", Table: []throttle.Policy{shop}})
	require.NoError(t, all.Pause(t.Context(), target, time.Second, "anna", "so that the server knows the scripts"))

	var held *redistest.Fault
	client.AddHook(scriptHook(func(keys []string, call func() error) error {
		if held == nil && slices.Contains(keys, all.PausesKey()) {
			held = proxy.Disturb(redistest.HoldCall)
		}
		return call()
	}))
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	require.Error(t, must(fleet.New(client, fleet.Options{})).Pause(ctx, target, time.Hour, "anna", "why"))
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond) // by the server's clock, too
	held.Await(t)
	held.Pass(t)
	notes, err := server.Client(t).HVals(t.Context(), all.PausesKey()).Result()
	require.NoError(t, err)
	require.NotContains(t, strings.Join(notes, " "), "why")
}
