package redisstore_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestVectors plays what a fleet meets that shares one server: testdata/vectors/README.md has
// the moves that the vectors of package storetest lack.
func TestVectors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/vectors/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			storetest.RunVectors(t, filepath.Base(file), string(text), func(t *testing.T) storetest.Fleet { return newPlayers(t, server) })
		})
	}
}

// Players are the programs of a vector, by their names, and the server that they share, whose
// clock can be set.
type players struct {
	*testing.T
	skewed
	hooks    []redis.Hook
	server   *redistest.Server
	operator *redis.Client
	began    time.Time
	programs map[string]*player
	kept     keptRows // what the server had, as a replica that lags
}

// A player is a program. Its calls can fail, be lost with their answers, or be slow.
type player struct {
	tap
	store *redisstore.Store

	// The lock of the tap guards the rest.
	back  time.Time // until then no call reaches the server
	loses int       // the answers of how many calls are lost
	then  func()    // what happens when the last one is
	slow  time.Duration
}

// newPlayers returns the programs of a vector; hooks are the innermost ones of their clients.
func newPlayers(t *testing.T, server *redistest.Server, hooks ...redis.Hook) storetest.Fleet {
	p := &players{T: t, hooks: hooks, server: server, operator: server.Client(t), began: time.Now(), programs: make(map[string]*player)}
	loaded(t, p.operator, nil)
	return storetest.Fleet{
		Program: func(name string) store.Store { return p.program(name).store },
		Moves: map[string]func(storetest.Move){
			"clock":   func(m storetest.Move) { p.step(m.Times[0]) },
			"forget":  p.forget,
			"expire":  p.expire,
			"keep":    func(storetest.Move) { p.kept = keepRows(t, p.operator) },
			"restore": p.restore,
			"persist": func(m storetest.Move) { require.NoError(t, p.operator.Persist(t.Context(), p.key(m.Charges[0])).Err()) },
			"small":   func(storetest.Move) { requireSmall(t, p.operator) },
			"lives":   p.lives,
			"cut":     p.cut,
			"mend":    func(m storetest.Move) { p.program(m.Program).isAwayUntil(time.Time{}) },
			"lose":    p.lose,
			"slow":    p.slow,
			"calls":   p.calls,
			"leases":  func(m storetest.Move) { p.is(m, p.program(m.Program).store.Leases()) },
			"listens": func(m storetest.Move) { p.is(m, p.program(m.Program).store.Subscriptions()) },
			"now":     func(m storetest.Move) { p.is(m, int(time.Since(p.began))) },
			"knows":   p.knows,
			"used":    p.used,
		},
	}
}

// program returns a program, which begins when it is first named.
func (p *players) program(name string) *player {
	if known, ok := p.programs[name]; ok {
		return known
	}
	client, way := p.server.Client(p), &player{}
	client.AddHook(way)
	for _, h := range p.hooks {
		client.AddHook(h)
	}
	way.store = atRest(p.T, redisstore.NewAt(client, redisstore.Options{}, func() int64 {
		way.mu.Lock()
		defer way.mu.Unlock()
		return p.now() + way.slow.Microseconds() // the call that begins now arrives then
	}).Listen())
	p.programs[name] = way
	return way
}

// ProcessHook is the way of a program's calls.
func (w *player) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		w.mu.Lock()
		w.cmds = append(w.cmds, cmd)
		slow := w.slow
		w.slow = 0
		w.mu.Unlock()
		if time.Sleep(slow); w.isAway() {
			return failing(cmd, errAway)
		}
		if err := next(ctx, cmd); !w.losesAnswer() {
			return err
		}
		return failing(cmd, errAway)
	}
}

// isAwayUntil lets no call reach the server until then.
func (w *player) isAwayUntil(back time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.back = back
}

func (w *player) isAway() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.back)
}

// losesAnswer reports whether the answer that came now is lost.
func (w *player) losesAnswer() bool {
	w.mu.Lock()
	lost, then := w.loses > 0, w.then
	if lost {
		w.loses--
	}
	last := lost && w.loses == 0
	w.mu.Unlock()
	if last && then != nil {
		then()
	}
	return lost
}

// slow has the next call of a program take so long.
func (p *players) slow(m storetest.Move) {
	way := p.program(m.Program)
	way.mu.Lock()
	defer way.mu.Unlock()
	way.slow = m.Times[0]
}

// cut keeps a program's calls from the server for so long, or until it is mended.
func (p *players) cut(m storetest.Move) {
	long := 1000 * time.Hour
	if len(m.Times) > 0 {
		long = m.Times[0]
	}
	p.program(m.Program).isAwayUntil(time.Now().Add(long))
}

// lose loses the answers of so many calls. With the last one the clock is set, and then the server
// is away for so long, if the move says so.
func (p *players) lose(m storetest.Move) {
	way := p.program(m.Program)
	way.mu.Lock()
	defer way.mu.Unlock()
	way.loses, way.then = int(m.Times[0]), func() {
		if len(m.Times) > 1 {
			p.step(m.Times[1])
			way.isAwayUntil(time.Now().Add(m.Times[2]))
		}
	}
}

// forget lets the server lose all that it has, or what it has of some budgets, or its scripts.
func (p *players) forget(m storetest.Move) {
	if len(m.Words) > 0 {
		require.NoError(p, p.operator.ScriptFlush(p.Context()).Err())
	} else if len(m.Charges) == 0 {
		forgets(p.T, p.operator)
	}
	for _, c := range m.Charges {
		require.NoError(p, p.operator.Del(p.Context(), p.key(c)).Err())
	}
}

// restore takes the server back to what was kept, or to what was kept of some budgets.
func (p *players) restore(m storetest.Move) {
	rows := p.kept
	if len(m.Charges) > 0 {
		rows = make(keptRows)
	}
	for _, c := range m.Charges {
		rows[p.key(c)] = p.kept[p.key(c)]
	}
	rows.restore(p.T, p.operator)
}

// expire lets time pass for the key of a budget, too: if it expires in production it is deleted.
func (p *players) expire(m storetest.Move) {
	for _, c := range m.Charges {
		left := lifetime(p.T, p.operator, p.key(c))
		require.Positive(p, left, m.Place)
		if left-m.Times[0] > longer {
			require.NoError(p, p.operator.PExpire(p.Context(), p.key(c), left-m.Times[0]).Err())
		} else {
			require.NoError(p, p.operator.Del(p.Context(), p.key(c)).Err())
		}
	}
	time.Sleep(m.Times[0])
}

// longer is by how much keys outlive those of production in virtual time. Redis counts their lifetimes by its own clock, and a busy machine may take
// minutes for a virtual second.
const longer = time.Hour

// lives requires that the key of a budget would expire in production between two times from now on.
func (p *players) lives(m storetest.Move) {
	p.is(m, int(max(0, lifetime(p.T, p.operator, p.key(m.Charges[0]))-longer)))
}

// key returns the key of a budget.
func (p *players) key(c store.Charge) string {
	if s := p.program("").store; c.Limit.Kind() != store.KindConcurrency {
		return s.Key(c.Budget)
	} else {
		return s.LeasesKey(c.Budget)
	}
}

// calls requires that a program made so many calls since it was last asked.
func (p *players) calls(m storetest.Move) {
	synctest.Wait()
	p.is(m, len(p.program(m.Program).names()))
}

// is requires that something is what a move names, or between the two things that it names.
func (p *players) is(m storetest.Move, got int) {
	require.GreaterOrEqual(p, time.Duration(got), m.Times[0], m.Place)
	require.LessOrEqual(p, time.Duration(got), m.Times[len(m.Times)-1], m.Place)
}

// knows requires that a program believes a budget to be closed for so long.
func (p *players) knows(m storetest.Move) {
	require.Equal(p, m.Times[0], p.program(m.Program).store.Closed(p.key(m.Charges[0])), m.Place)
}

// used has an operator say how much is used, and requires what was used before.
func (p *players) used(m storetest.Move) {
	before := setUsed(p.T, p.operator, p.program(m.Program).store, m.Charges[0], int(m.Times[1]))
	require.Equal(p, int(m.Times[0]), before, m.Place)
}
