package fleet_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
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

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// start returns a reporter that reports when it is told to.
func start(t *testing.T, client redis.UniversalClient, program string) *fleet.Reporter {
	a := must(fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{Program: program, Interval: time.Hour}))
	t.Cleanup(a.Close)
	begun(t, a)
	return a
}

// begun waits for a reporter's first report.
func begun(t *testing.T, a *fleet.Reporter) {
	require.Eventually(t, func() bool { return a.Err() == nil }, time.Minute, time.Millisecond)
}

// limiter returns a limiter of a reporter.
func limiter(t *testing.T, s store.Store, p throttle.Policy) *throttle.Limiter {
	l, err := throttle.NewLimiter(s, p)
	require.NoError(t, err)
	return l
}

// acquire takes a start for each key.
func acquire(t *testing.T, l *throttle.Limiter, keys ...string) {
	for _, key := range keys {
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), key, 1)
		require.NoError(t, err)
	}
}

// used returns a program that took a start for each key and reported that, its limiter, and
// its fleet.
func used(t *testing.T, client redis.UniversalClient, p throttle.Policy, keys ...string) (*fleet.Reporter, *throttle.Limiter, *fleet.Fleet) {
	a := start(t, client, "program")
	l := limiter(t, a, p)
	acquire(t, l, keys...)
	a.Report()
	return a, l, must(fleet.New(client, fleet.Options{}))
}

// snapshot reads a fleet.
func snapshot(t *testing.T, f *fleet.Fleet) *fleet.Snapshot {
	s, err := f.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	return s
}

// budget returns the budget of that policy in a snapshot.
func budget(t *testing.T, s *fleet.Snapshot, policy string) fleet.Budget {
	for _, b := range s.Budgets {
		if b.Policy == policy {
			return b
		}
	}
	require.Fail(t, "no budget", policy)
	return fleet.Budget{}
}

// do sends a command to Redis.
func do(t *testing.T, c redis.UniversalClient, words ...any) any {
	reply, err := c.Do(context.Background(), words...).Result()
	require.NoError(t, err)
	return reply
}

// lessThanAnHour is the MaxWait of callers that are refused at once, because they would wait for longer. A
// caller that waits for nothing gives Redis one second, which a busy machine may need.
const lessThanAnHour = 2 * time.Minute

// refusal returns the error of a caller that is refused because an operator has paused the budget. The caller waits for the reason, but
// not for long: where a busy machine took longer the next caller knows the reason.
func refusal(t *testing.T, l *throttle.Limiter, key string) *throttle.LimitError {
	t.Helper()
	for attempts := 1; ; attempts++ {
		asked := time.Now()
		_, err := l.Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), key, 1)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		if limited.Note != (store.PauseNote{}) || time.Since(asked) < fleet.AwaitNote || attempts == 100 {
			return limited
		}
	}
}

// newClient returns a client that is closed when t ends.
func newClient(t *testing.T, o *redis.Options) *redis.Client {
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// must returns the value v of a constructor. It panics on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The switch of a fleet: an operator turns throttle off and on for all programs, through Redis.

// minute is a policy under which one start takes the budget for a minute.
var minute = throttle.Policy{Name: "minute", Limit: throttle.PerMinute(1)}

// awaitSwitch waits until a reporter is off, or on.
func awaitSwitch(t *testing.T, r *fleet.Reporter, off bool) {
	t.Helper()
	require.Eventually(t, func() bool { return r.Traits().Switch.IsOff() == off }, time.Minute, time.Millisecond)
}

// waiters are callers of a program that wait.
type waiters struct {
	sync.WaitGroup
	mu     sync.Mutex
	errs   []error
	passed int
}

// wait has n callers wait for a start of the limiter.
func (w *waiters) wait(t *testing.T, l *throttle.Limiter, n int) {
	for range n {
		w.Go(func() {
			_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.errs, w.passed = append(w.errs, err), w.passed+1
		})
	}
}

// count returns how many callers have an answer.
func (w *waiters) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed
}

// end waits until all callers have their start.
func (w *waiters) end(t *testing.T) {
	t.Helper()
	w.Wait()
	require.NoError(t, errors.Join(w.errs...))
}

// TestOff: all programs of a fleet let their waiting callers start, also under a pause, and say so in their reports. When the
// operator turns throttle on, the limit holds again.
func TestOff(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	reporters, limiters := make([]*fleet.Reporter, 3), make([]*throttle.Limiter, 3)
	for i := range reporters {
		reporters[i] = start(t, client, "program")
		limiters[i] = limiter(t, reporters[i], minute)
	}
	acquire(t, limiters[0], "")

	var waiting waiters
	for _, l := range limiters {
		waiting.wait(t, l, 4)
	}
	require.Eventually(t, func() bool {
		st, err := limiters[0].Status(t.Context(), "")
		return err == nil && st.Callers == 12
	}, time.Minute, time.Millisecond)
	require.Zero(t, waiting.count())
	require.NoError(t, limiters[1].Pause(t.Context(), "", time.Hour))

	command, was, err := all.TurnOff(t.Context(), time.Hour, "anna\x1b", "the limits are wrong")
	require.NoError(t, err)
	require.False(t, was)
	require.Equal(t, `anna\x1b`, command.By)
	require.Equal(t, time.Hour, command.Until.Sub(command.At))
	waiting.end(t)
	for _, l := range limiters {
		acquire(t, l, "", "") // newcomers
	}

	for _, r := range reporters {
		awaitSwitch(t, r, true)
		r.Report()
	}
	s := snapshot(t, all)
	require.Equal(t, command, *s.Switch)
	require.Equal(t, 3, s.Off)
	require.Regexp(t, "^3 programs off, 1 closed", s.Verdict())
	passed := int64(0)
	for _, n := range s.Nodes {
		require.True(t, n.Switch.Took(&command))
		require.Equal(t, `anna\x1b`, n.Switch.By)
		require.Positive(t, n.Switch.Left.Duration)
		require.LessOrEqual(t, n.Switch.Left.Duration, time.Hour)
		passed += n.Switch.Passed
	}
	require.EqualValues(t, 18, passed)

	// A program that starts now is off, too.
	late := start(t, client, "late")
	awaitSwitch(t, late, true)

	// The pause is not over, and is met when throttle is on again.
	_, was, err = all.TurnOn(t.Context(), "anna", "mended")
	require.NoError(t, err)
	require.True(t, was)
	for i, r := range reporters {
		awaitSwitch(t, r, false)
		_, err := limiters[i].Acquire(throttle.WithMaxWait(t.Context(), lessThanAnHour), "", 1)
		require.ErrorIs(t, err, throttle.ErrLimited)
		r.Report()
	}
	awaitSwitch(t, late, false)
	late.Report()
	require.Zero(t, snapshot(t, all).Off)

	acts, _, err := all.Audit(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, []string{"on", "off"}, []string{acts[0].Act, acts[1].Act})
	require.Equal(t, "the limits are wrong", acts[1].Reason)
	require.Equal(t, time.Hour, acts[1].For.Duration)
}

// TestOff_FailsSafe: a Redis that is away, and one that has lost everything, turns nobody on or off. The end comes all the same.
func TestOff_FailsSafe(t *testing.T) {
	server := redistest.Single(t)
	client := server.Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	off, on := start(t, client, "off"), start(t, client, "on")

	_, _, err := all.TurnOff(t.Context(), 24*time.Hour, "anna", "")
	require.NoError(t, err)
	awaitSwitch(t, off, true)
	awaitSwitch(t, on, true)
	on.Traits().Switch.TurnOn() // as if it had not heard of it

	server.Kill()
	off.Look()
	on.Look()
	awaitSwitch(t, off, true)
	awaitSwitch(t, on, false)

	server.Restart()
	require.Eventually(t, func() bool { return client.FlushAll(t.Context()).Err() == nil }, time.Minute, time.Millisecond)
	off.Look()
	on.Look()
	awaitSwitch(t, off, true)
	awaitSwitch(t, on, false)

	// An operator can turn on programs whose command Redis has lost.
	_, was, err := all.TurnOn(t.Context(), "anna", "")
	require.NoError(t, err)
	require.False(t, was)
	awaitSwitch(t, off, false)

	// The end comes while Redis is away. A busy machine may hear of a short time when it is over, so the next time is longer.
	for length := 2 * time.Second; !off.Traits().Switch.IsOff(); length *= 2 {
		_, _, err = all.TurnOff(t.Context(), length, "anna", "")
		require.NoError(t, err)
		for end := time.Now().Add(length); !off.Traits().Switch.IsOff() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		require.Less(t, length, time.Minute, "it never hears")
	}
	server.Kill()
	awaitSwitch(t, off, false)
}

// An enteredStore counts the calls of Book that have begun.
type enteredStore struct {
	store.Store
	entered atomic.Int64
}

func (s *enteredStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	s.entered.Add(1)
	return s.Store.Book(ctx, b)
}

// TestOff_RedisIsAway: callers that wait for a Redis that is away start when the program turns its switch off, and so do
// newcomers, whose requests do not ask Redis.
func TestOff_RedisIsAway(t *testing.T) {
	server := redistest.Single(t)
	client := server.Client(t)
	server.Kill()

	for name, observe := range map[string]func(context.Context, throttle.Event){"observer": func(context.Context, throttle.Event) {}, "no observer": nil} {
		t.Run(name, func(t *testing.T) {
			inner, sw := &enteredStore{Store: redisstore.New(client, redisstore.Options{})}, new(store.Switch)
			config := throttle.Config{Store: store.WithSwitch(inner, sw), Policies: []throttle.Policy{minute}, Observe: observe}
			l := must(must(throttle.NewLimiters(config)).Limiter("minute"))

			var waiting waiters
			waiting.wait(t, l, 8)
			require.Eventually(t, func() bool { return inner.entered.Load() == 8 }, time.Minute, time.Millisecond)
			require.Zero(t, waiting.count())
			sw.TurnOff(store.Off{By: "flag"})
			waiting.end(t)
			acquire(t, l, "", "", "")
			require.EqualValues(t, 11, sw.Passed())
			require.EqualValues(t, 8, inner.entered.Load())
		})
	}
}

// TestOff_Refused: lengths that nobody can mean, and notes that somebody wrote by hand, turn nothing.
func TestOff_Refused(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	for _, d := range []time.Duration{0, -1, fleet.MaxOff + 1} {
		_, _, err := all.TurnOff(t.Context(), d, "anna", "")
		require.Error(t, err)
	}
	command, err := all.Switch(t.Context())
	require.NoError(t, err)
	require.Nil(t, command)

	r := start(t, client, "program")
	for _, note := range [][]any{
		{"off", "1"},
		{"at", "1", "off", "1"},
		{"at", "1", "off", "2", "until", "9999999999999999"},
		{"at", "-1", "off", "1", "until", "9999999999999999"},
		{"at", "now", "off", "1", "until", "9999999999999999"},
	} {
		require.NoError(t, client.Del(t.Context(), "throttle:{fleet}:off").Err())
		require.NoError(t, client.HSet(t.Context(), "throttle:{fleet}:off", note...).Err())
		r.Look()
		require.ErrorContains(t, r.Err(), "cannot be read")
		require.False(t, r.Traits().Switch.IsOff(), note)
		require.Equal(t, 1, snapshot(t, all).Illegible)
	}

	// A note without an end is cut to the longest.
	require.NoError(t, client.HSet(t.Context(), "throttle:{fleet}:off", "at", "2", "off", "1", "until", "9999999999999999").Err())
	r.Look()
	require.NoError(t, r.Err())
	state, off := r.Traits().Switch.State()
	require.True(t, off)
	require.WithinDuration(t, time.Now().Add(fleet.MaxOff), state.Until, time.Minute)

	require.NoError(t, client.Del(t.Context(), "throttle:{fleet}:off").Err())
	require.NoError(t, client.Set(t.Context(), "throttle:{fleet}:off", "text", 0).Err())
	r.Look()
	require.ErrorContains(t, r.Err(), "cannot be read")

	_, err = fleet.Start(client, store.WithSwitch(memstore.New(), new(store.Switch)), fleet.ReporterOptions{})
	require.ErrorContains(t, err, "has a Switch")
}

// TestOff_OlderCommand: a command that is older than the command that a program has taken, as a replica may have it, turns nothing.
func TestOff_OlderCommand(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	r := start(t, client, "program")
	on, _, err := all.TurnOn(t.Context(), "anna", "")
	require.NoError(t, err)
	r.Look()

	older := []any{"at", on.At.UnixMicro() - 1, "off", "1", "until", time.Now().Add(time.Hour).UnixMicro()}
	require.NoError(t, client.HSet(t.Context(), "throttle:{fleet}:off", older...).Err())
	r.Look()
	require.False(t, r.Traits().Switch.IsOff())

	// Commands follow each other although the server's clock was set back.
	require.NoError(t, client.HSet(t.Context(), "throttle:{fleet}:off", "at", on.At.Add(time.Hour).UnixMicro()).Err())
	next, was, err := all.TurnOff(t.Context(), time.Minute, "anna", "")
	require.NoError(t, err)
	require.True(t, was)
	require.Equal(t, on.At.Add(time.Hour+time.Microsecond), next.At)
}

// TestOff_Environment: a program that its environment has turned off says so, and no operator turns it on.
func TestOff_Environment(t *testing.T) {
	t.Setenv(store.OffVariable, "Redis is ill")
	client := redistest.Shared(t).Client(t)
	all := must(fleet.New(client, fleet.Options{}))
	r := start(t, client, "program")
	l := limiter(t, r, minute)
	acquire(t, l, "", "")
	_, _, err := all.TurnOn(t.Context(), "anna", "")
	require.NoError(t, err)
	r.Look()
	acquire(t, l, "", "")
	r.Report()
	n := snapshot(t, all).Nodes[0]
	require.Equal(t, fleet.NodeSwitch{At: n.Switch.At, Off: true, By: "THROTTLE_OFF", Reason: "Redis is ill"}, n.Switch)
	require.Positive(t, n.Switch.At)
}
