package riverthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/riverthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/internal/lab/readme"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A call is a job that calls the API.
type call struct {
	Name string `json:"name"`
	Free bool   `json:"free"`
}

func (call) Kind() string { return "call" }

// A shop is a queue with its programs, and how jobs begin.
type shop struct {
	t     *testing.T
	pool  *pgxpool.Pool
	redis *redis.Client

	mu     sync.Mutex
	starts map[string][]time.Time
	fails  map[string]int // how often a job shall fail
}

func open(t *testing.T) *shop {
	pool, err := pgxpool.New(t.Context(), pgtest.Start(t).URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	return &shop{t: t, pool: pool, redis: redistest.Shared(t).Client(t), starts: make(map[string][]time.Time), fails: make(map[string]int)}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (s *shop) limiters(l throttle.Limit) *throttle.Limiters {
	made, err := throttle.NewLimiters(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    redisstore.New(s.redis, redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "api", Limit: l}},
	})
	require.NoError(s.t, err)
	return made
}

// serve starts a program with so many workers, and stops it when the test ends.
func (s *shop) serve(l *throttle.Limiters, workers int, patience time.Duration) *river.Client[pgx.Tx] {
	gate, err := riverthrottle.New(l, riverthrottle.Options{
		Patience: patience,
		Demands: func(job *rivertype.JobRow) []throttle.Demand {
			if slices.Contains(job.Tags, "free") {
				return nil
			}
			return []throttle.Demand{{Policy: "api"}}
		},
	})
	require.NoError(s.t, err)
	all := river.NewWorkers()
	river.AddWorker(all, river.WorkFunc(func(ctx context.Context, job *river.Job[call]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if (riverthrottle.Permit(ctx) != nil) == job.Args.Free {
			return errors.New("the wrong permit")
		}
		s.starts[job.Args.Name] = append(s.starts[job.Args.Name], time.Now())
		s.fails[job.Args.Name]--
		if s.fails[job.Args.Name] >= 0 {
			return errors.New("broken")
		}
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		Workers: all, Middleware: []rivertype.Middleware{gate}, Logger: quiet(), FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, RetryPolicy: atOnce{},
	})
	require.NoError(s.t, err)
	require.NoError(s.t, client.Start(context.WithoutCancel(s.t.Context())))
	s.t.Cleanup(func() { _ = client.StopAndCancel(context.Background()) })
	return client
}

// atOnce retries at once.
type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

func (s *shop) await(n int) {
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.starts) >= n
	}, time.Minute, 5*time.Millisecond)
}

// snoozed returns how many jobs are snoozed now.
func (s *shop) snoozed() (n int) {
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT count(*) FROM river_job WHERE metadata ? 'snoozes' AND state IN ('scheduled', 'available')`).Scan(&n))
	return n
}

// TestJobs: two programs with a few workers serve more jobs than the limit lets start. Each begins once, none fails, and the workers
// are free for what has no limit.
func TestJobs(t *testing.T) {
	t.Parallel()
	const jobs, perSecond = 80, 20
	s := open(t)
	clients := []*river.Client[pgx.Tx]{
		s.serve(s.limiters(throttle.PerSecond(perSecond)), 4, 50*time.Millisecond),
		s.serve(s.limiters(throttle.PerSecond(perSecond)), 4, 50*time.Millisecond),
	}
	s.fails["7"] = 1
	var many []river.InsertManyParams
	for i := range jobs {
		many = append(many, river.InsertManyParams{Args: call{Name: fmt.Sprint(i)}, InsertOpts: &river.InsertOpts{MaxAttempts: 2}})
	}
	_, err := clients[0].InsertMany(t.Context(), many)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.snoozed() > jobs/4 }, time.Minute, 5*time.Millisecond)
	_, err = clients[1].Insert(t.Context(), call{Name: "free", Free: true}, &river.InsertOpts{Tags: []string{"free"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.starts["free"] != nil
	}, time.Minute, 5*time.Millisecond)
	s.mu.Lock()
	require.Less(t, len(s.starts), jobs, "it went while others wait")
	s.mu.Unlock()
	var completed int
	require.Eventually(t, func() bool {
		require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&completed))
		return completed == jobs+1
	}, time.Minute, 5*time.Millisecond)

	var starts []time.Time
	for name, at := range s.starts {
		want := 1
		if name == "7" {
			want = 2
		}
		require.Len(t, at, want, name)
		if name != "free" {
			starts = append(starts, at...)
		}
	}
	slices.SortFunc(starts, time.Time.Compare)
	t.Logf("%d starts in %v", len(starts), starts[len(starts)-1].Sub(starts[0]))
	const arrival = 30 * time.Millisecond // between the permit and the worker's look at the clock, on a machine that is busy
	for i := range starts[:len(starts)-perSecond] {
		require.Greater(t, starts[i+perSecond].Sub(starts[i]), time.Second-arrival, "P1")
	}
	var attempts, kept, snoozes int
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT max(attempt), count(*) FILTER (WHERE metadata->>$1 IS NOT NULL), sum((metadata->>'snoozes')::int)
		FROM river_job WHERE args->>'name' <> '7'`, riverthrottle.MetadataKey).Scan(&attempts, &kept, &snoozes))
	t.Logf("%d snoozes", snoozes)
	require.Equal(t, 1, attempts, "to be snoozed is no attempt")
	require.Zero(t, kept, "a place that is used up is not kept")
}

// TestJobKeepsItsOrder: a job is snoozed while callers wait in memory, and others come after it. It begins before those,
// within the time between its visits.
func TestJobKeepsItsOrder(t *testing.T) {
	t.Parallel()
	const callers, perSecond = 160, 20
	s := open(t)
	caller := s.limiters(throttle.PerSecond(perSecond))
	one, err := caller.Limiter("api")
	require.NoError(t, err)
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
		require.Eventually(t, func() bool {
			st, err := one.Status(t.Context(), "")
			return err == nil && st.Waiting >= (to-from)/2
		}, time.Minute, time.Millisecond)
	}
	client := s.serve(s.limiters(throttle.PerSecond(perSecond)), 1, 2*time.Second)
	come(0, callers/2)
	_, err = client.Insert(t.Context(), call{Name: "job"}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.snoozed() == 1 }, time.Minute, time.Millisecond)
	come(callers/2, callers)
	s.await(callers + 1)
	all.Wait()
	at, passed := s.starts["job"][0], 0
	for name, c := range s.starts {
		var i int
		if n, _ := fmt.Sscanf(name, "caller %d", &i); n == 1 && i >= callers/2 && c[0].Before(at) {
			passed++
		}
	}
	t.Logf("%d of %d that came later began before", passed, callers/2)
	require.Less(t, passed, perSecond*5/2, "its snooze is short, so River looks for it when it is over")
}

// TestJobWithAnOddPlace gets a new one.
func TestJobWithAnOddPlace(t *testing.T) {
	t.Parallel()
	s := open(t)
	client := s.serve(s.limiters(throttle.PerSecond(5)), 2, time.Second)
	for i, metadata := range []string{`{"throttle:place": "odd"}`, `{"throttle:place": 7}`, `{"throttle:place": null}`, `{}`} {
		_, err := client.Insert(t.Context(), call{Name: fmt.Sprint(i)}, &river.InsertOpts{Metadata: []byte(metadata)})
		require.NoError(t, err)
	}
	s.await(4)
	_, err := riverthrottle.New(nil, riverthrottle.Options{Patience: -1})
	for _, wrong := range []string{"Demands", "limiters", "Options.Patience is -1ns"} {
		require.ErrorContains(t, err, wrong, "all mistakes at once")
	}
}

// A withoutPlaces is a store that keeps no places.
type withoutPlaces struct{ throttle.Store }

func (withoutPlaces) Traits() store.Traits { return store.Traits{} }

// TestNewWantsPlaces: a store without places is refused when the gate is made, and not by each job.
func TestNewWantsPlaces(t *testing.T) {
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: withoutPlaces{memstore.New()}})
	require.NoError(t, err)
	_, err = riverthrottle.New(l, riverthrottle.Options{Demands: func(*rivertype.JobRow) []throttle.Demand { return nil }})
	require.ErrorAs(t, err, new(*throttle.ConfigError))
	require.ErrorContains(t, err, "keeps no places: use memstore or redisstore")
}

// TestReadmeCompiles: readers copy the program, so it passes go vet as it stands.
func TestReadmeCompiles(t *testing.T) { readme.Vet(t) }
