package asynqthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/asynqthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/readme"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A shop is a queue with its servers, and how tasks begin.
type shop struct {
	t      *testing.T
	client *redis.Client
	tasks  *asynq.Client
	look   *asynq.Inspector

	mu     sync.Mutex
	starts map[string][]time.Time // by payload
	fails  int                    // how often the handler shall fail
}

// open returns an empty shop.
func open(t *testing.T) *shop {
	s := &shop{t: t, client: redistest.Shared(t).Client(t), starts: make(map[string][]time.Time)}
	s.tasks, s.look = asynq.NewClientFromRedisClient(s.client), asynq.NewInspectorFromRedisClient(s.client)
	return s
}

// limiters are those of one program.
func (s *shop) limiters(l throttle.Limit) *throttle.Limiters {
	made, err := throttle.NewLimiters(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    redisstore.New(s.client, redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "api", Limit: l}},
	})
	require.NoError(s.t, err)
	return made
}

// serve starts a program with so many workers, and stops it when the test ends.
func (s *shop) serve(l *throttle.Limiters, workers int, patience time.Duration) {
	gate, err := asynqthrottle.New(l, s.client, asynqthrottle.Options{
		Patience: patience,
		Demands: func(t *asynq.Task) []throttle.Demand {
			if t.Type() == "free" {
				return nil
			}
			return []throttle.Demand{{Policy: "api"}}
		},
	})
	require.NoError(s.t, err)
	server := asynq.NewServerFromRedisClient(s.client, gate.Config(asynq.Config{
		Concurrency: workers, LogLevel: asynq.FatalLevel, TaskCheckInterval: 20 * time.Millisecond,
	}))
	mux := asynq.NewServeMux()
	mux.Use(gate.Middleware)
	handle := func(ctx context.Context, t *asynq.Task) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if (asynqthrottle.Permit(ctx) != nil) != (t.Type() == "call") {
			return errors.New("the wrong permit")
		}
		if s.fails > 0 {
			s.fails--
			return errors.New("broken")
		}
		s.starts[string(t.Payload())] = append(s.starts[string(t.Payload())], time.Now())
		return nil
	}
	mux.HandleFunc("call", handle)
	mux.HandleFunc("free", handle)
	require.NoError(s.t, server.Start(mux))
	s.t.Cleanup(server.Shutdown)
}

func (s *shop) enqueue(kind, name string, o ...asynq.Option) {
	_, err := s.tasks.Enqueue(asynq.NewTask(kind, []byte(name), o...))
	require.NoError(s.t, err)
}

// await waits until so many tasks have begun.
func (s *shop) await(n int) {
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.starts) >= n
	}, time.Minute, 5*time.Millisecond)
}

// TestTasks: two programs with a few workers serve more tasks than the limit lets start. Each begins once, none fails, and
// the workers are free for what has no limit.
func TestTasks(t *testing.T) {
	t.Parallel()
	const tasks, perSecond = 100, 20
	s := open(t)
	for i := range tasks {
		s.enqueue("call", fmt.Sprint(i), asynq.MaxRetry(1), asynq.Retention(time.Hour))
	}
	for range 2 {
		s.serve(s.limiters(throttle.PerSecond(perSecond)), 4, 50*time.Millisecond)
	}
	require.Eventually(t, func() bool {
		info, err := s.look.GetQueueInfo("default")
		return err == nil && info.Retry > tasks/2
	}, time.Minute, 5*time.Millisecond, "they are put aside")
	s.enqueue("free", "free")
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.starts["free"] != nil
	}, time.Minute, 5*time.Millisecond)
	s.mu.Lock()
	require.Less(t, len(s.starts), tasks, "it went while others wait")
	s.mu.Unlock()
	s.await(tasks + 1)

	info, err := s.look.GetQueueInfo("default")
	require.NoError(t, err)
	require.Zero(t, info.FailedTotal)
	require.Zero(t, info.Archived)
	var starts []time.Time
	for name, at := range s.starts {
		require.Len(t, at, 1, name)
		if name != "free" {
			starts = append(starts, at...)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	t.Logf("%d tasks in %v", tasks, starts[tasks-1].Sub(starts[0]))
	const arrival = 30 * time.Millisecond // between the permit and the handler's look at the clock, on a machine that is busy
	for i := range starts[:tasks-perSecond] {
		require.Greater(t, starts[i+perSecond].Sub(starts[i]), time.Second-arrival, "P1")
	}
	done, err := s.look.ListCompletedTasks("default", asynq.PageSize(tasks))
	require.NoError(t, err)
	for _, d := range done {
		require.Zero(t, d.Retried, "to be put aside is no retry")
	}
	keys, err := s.client.Keys(t.Context(), asynqthrottle.DefaultPrefix+"*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// TestTaskKeepsItsOrder: a task is put aside while callers wait in memory, and others come after it. It begins before
// those, within the time between its visits.
func TestTaskKeepsItsOrder(t *testing.T) {
	t.Parallel()
	const callers, perSecond = 120, 20
	s := open(t)
	caller := s.limiters(throttle.PerSecond(perSecond))
	var all sync.WaitGroup
	come := func(from, to int) {
		for i := from; i < to; i++ {
			all.Go(func() {
				if _, err := caller.Acquire(t.Context(), throttle.Demand{Policy: "api"}); err == nil {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.starts[fmt.Sprintf("caller %d", i)] = []time.Time{time.Now()}
				}
			})
		}
		one, err := caller.Limiter("api")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			st, err := one.Status(t.Context(), "")
			return err == nil && st.Waiting+st.Used >= (to-from)/2
		}, time.Minute, time.Millisecond)
	}
	come(0, callers/2)
	s.serve(s.limiters(throttle.PerSecond(perSecond)), 1, time.Second)
	s.enqueue("call", "task")
	require.Eventually(t, func() bool {
		info, err := s.look.GetQueueInfo("default")
		return err == nil && info.Retry == 1
	}, time.Minute, time.Millisecond)
	come(callers/2, callers)
	s.await(callers + 1)
	all.Wait()
	at, passed := s.starts["task"][0], 0
	for name, c := range s.starts {
		var i int
		if n, _ := fmt.Sscanf(name, "caller %d", &i); n == 1 && i >= callers/2 && c[0].Before(at) {
			passed++
		}
	}
	t.Logf("%d of %d that came later began before", passed, callers/2)
	require.Less(t, passed, perSecond*5/2, "asynq looks for it every second, and a horizon is booked already")
}

// TestTaskWithoutRetries: asynq would archive it if it were put aside, so it waits in its worker.
func TestTaskWithoutRetries(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.serve(s.limiters(throttle.PerSecond(2)), 4, 50*time.Millisecond)
	for i := range 5 {
		s.enqueue("call", fmt.Sprint(i), asynq.MaxRetry(0))
	}
	s.await(5)
	info, err := s.look.GetQueueInfo("default")
	require.NoError(t, err)
	require.Zero(t, info.Archived)
}

// TestTaskFails as it would without a gate: by the delay and the count of the configuration.
func TestTaskFails(t *testing.T) {
	s := open(t)
	gate, err := asynqthrottle.New(s.limiters(throttle.PerSecond(2)), s.client, asynqthrottle.Options{
		Demands: func(*asynq.Task) []throttle.Demand { return nil },
	})
	require.NoError(t, err)
	broken, gentle := errors.New("broken"), errors.New("gentle")
	c := gate.Config(asynq.Config{
		RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(n) },
		IsFailure:      func(err error) bool { return err == broken },
	})
	require.Equal(t, time.Duration(7), c.RetryDelayFunc(7, broken, nil))
	require.True(t, c.IsFailure(broken))
	require.False(t, c.IsFailure(gentle))
	require.Equal(t, time.Second, c.DelayedTaskCheckInterval)
	require.True(t, gate.Config(asynq.Config{}).IsFailure(gentle))

	later := fmt.Errorf("wrapped: %w", &asynqthrottle.Later{Place: new(throttle.Place), Lost: broken})
	require.ErrorIs(t, later, throttle.ErrLimited)
	require.ErrorIs(t, later, broken)
	require.False(t, c.IsFailure(later))
	require.Zero(t, c.RetryDelayFunc(7, later, nil))
	require.Equal(t, 1, strings.Count(later.Error(), "its place was lost"))

	_, err = asynqthrottle.New(nil, nil, asynqthrottle.Options{Patience: -1})
	for _, wrong := range []string{"Demands", "limiters", "client", "Options.Patience is -1ns"} {
		require.ErrorContains(t, err, wrong, "all mistakes at once")
	}
}

// TestPlaceThatCannotBeRead: a task whose place is broken gets a new one, and its error says so.
func TestPlaceThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	gate, err := asynqthrottle.New(s.limiters(throttle.PerHour(1)), s.client, asynqthrottle.Options{
		Demands: func(*asynq.Task) []throttle.Demand { return []throttle.Demand{{Policy: "api"}} },
	})
	require.NoError(t, err)
	handler := gate.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
	task := asynq.NewTask("call", nil)
	require.NoError(t, handler.ProcessTask(t.Context(), task))

	var later *asynqthrottle.Later
	require.ErrorAs(t, handler.ProcessTask(t.Context(), task), &later)
	require.NoError(t, later.Lost)

	keys, err := s.client.Keys(t.Context(), asynqthrottle.DefaultPrefix+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.NoError(t, s.client.Set(t.Context(), keys[0], "broken", 0).Err())
	require.ErrorAs(t, handler.ProcessTask(t.Context(), task), &later)
	require.Error(t, later.Lost)

	require.ErrorAs(t, handler.ProcessTask(t.Context(), task), &later)
	require.NoError(t, later.Lost)
}

// A withoutPlaces is a store that keeps no places.
type withoutPlaces struct{ throttle.Store }

func (withoutPlaces) Traits() store.Traits { return store.Traits{} }

// TestNewWantsPlaces: a store without places is refused when the gate is made, and not by each task.
func TestNewWantsPlaces(t *testing.T) {
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: withoutPlaces{memstore.New()}})
	require.NoError(t, err)
	_, err = asynqthrottle.New(l, nil, asynqthrottle.Options{Demands: func(*asynq.Task) []throttle.Demand { return nil }})
	require.ErrorAs(t, err, new(*throttle.ConfigError))
	require.ErrorContains(t, err, "keeps no places: use memstore or redisstore")
	require.ErrorContains(t, err, "the client is missing", "all mistakes at once")
}

// TestReadmeCompiles: readers copy the program, so it passes go vet as it stands.
func TestReadmeCompiles(t *testing.T) { readme.Vet(t) }
