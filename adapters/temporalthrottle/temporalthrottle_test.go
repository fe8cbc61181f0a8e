package temporalthrottle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/temporalthrottle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// limiters have one limit, named "api".
func limiters(t *testing.T, l throttle.Limit) *throttle.Limiters {
	made, err := throttle.NewLimiters(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "api", Limit: l}},
	})
	require.NoError(t, err)
	return made
}

// use uses so much of the limit.
func use(t *testing.T, l *throttle.Limiters, n int) {
	for range n {
		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "api"})
		require.NoError(t, err)
		permit.Release()
	}
}

// patience is for how long the activities of tests wait in their worker.
const patience = 50 * time.Millisecond

// A job is an activity that says with which progress it began.
type job struct{ limits *throttle.Limiters }

func (j job) Run(ctx context.Context) (int, error) {
	gate, err := temporalthrottle.New(j.limits)
	if err != nil {
		return 0, err
	}
	permit, err := gate.Acquire(throttle.WithMaxWait(ctx, patience), throttle.Demand{Policy: "api"})
	if err != nil {
		return 0, err
	}
	defer permit.Release()
	if !temporalthrottle.HasHeartbeatDetails(ctx) {
		return -1, nil
	}
	var progress int
	return progress, activity.GetHeartbeatDetails(ctx, &progress)
}

// run runs the job once, in a worker's environment, with the heartbeat details of its last attempt, and returns what
// it recorded.
func (j job) run(t *testing.T, before []any) (progress int, recorded converter.EncodedValues, err error) {
	env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
	env.RegisterActivity(j.Run)
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) { recorded = details })
	if before != nil {
		env.SetHeartbeatDetails(before[0])
	}
	result, err := env.ExecuteActivity(j.Run)
	if err == nil {
		require.NoError(t, result.Get(&progress))
	}
	return progress, recorded, err
}

// TestPutAside: the error asks for another attempt when the place says to come, and is no failure in the metrics.
func TestPutAside(t *testing.T) {
	t.Parallel()
	j := job{limiters(t, throttle.PerMinute(1))}
	use(t, j.limits, 1)
	_, recorded, err := j.run(t, nil)
	var later *temporal.ApplicationError
	require.ErrorAs(t, err, &later)
	require.Equal(t, temporalthrottle.ErrorType, later.Type())
	require.Equal(t, temporal.ApplicationErrorCategoryBenign, later.Category())
	require.False(t, later.NonRetryable())
	var kept map[string]*throttle.Place
	require.NoError(t, recorded.Get(&kept))
	place := kept["throttle:place"]
	require.NotNil(t, place)
	require.InDelta(t, place.RetryAfter(), later.NextRetryDelay(), float64(30*time.Second))
	require.Greater(t, later.NextRetryDelay(), 20*time.Second)

	// The next attempt comes with the place, too early: it keeps its appointment.
	_, recorded, err = j.run(t, []any{kept})
	require.ErrorAs(t, err, &later)
	var again map[string]*throttle.Place
	require.NoError(t, recorded.Get(&again))
	require.WithinDuration(t, place.When, again["throttle:place"].When, time.Second)
}

// TestProgress: an activity without a place has its own details, and they stay in front of its place.
func TestProgress(t *testing.T) {
	t.Parallel()
	j := job{limiters(t, throttle.PerMinute(2))}
	progress, _, err := j.run(t, []any{7})
	require.NoError(t, err)
	require.Equal(t, 7, progress)
	progress, recorded, err := j.run(t, nil)
	require.NoError(t, err)
	require.Equal(t, -1, progress)
	require.Nil(t, recorded, "it had no place")

	_, recorded, err = j.run(t, []any{7})
	require.Error(t, err)
	var kept map[string]*throttle.Place
	require.NoError(t, recorded.Get(&progress, &kept))
	require.Equal(t, 7, progress)
	require.NotNil(t, kept["throttle:place"])
}

// TestBadPlaces: a place that cannot be redeemed is given up.
func TestBadPlaces(t *testing.T) {
	t.Parallel()
	j := job{limiters(t, throttle.PerMinute(2))}
	other, err := throttle.NewLimiters(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "other", Limit: throttle.PerMinute(1)}},
	})
	require.NoError(t, err)
	demand := throttle.Demand{Policy: "other"}
	_, err = other.Acquire(t.Context(), demand)
	require.NoError(t, err)
	_, place, err := other.Reserve(throttle.WithMaxWait(t.Context(), time.Millisecond), nil, demand)
	require.NoError(t, err)
	progress, recorded, err := j.run(t, []any{map[string]any{"throttle:place": place}})
	require.NoError(t, err)
	require.Equal(t, -1, progress)
	require.False(t, recorded == nil, "its place is used up")
	require.False(t, recorded.HasValues())
	_, _, err = j.run(t, []any{map[string]string{"throttle:place": "cut"}})
	require.Error(t, err, "an illegible place is a detail of the activity's own, which is no int")
	require.NotContains(t, err.Error(), "put aside")
}

// A withoutPlaces is a store that keeps no places.
type withoutPlaces struct{ throttle.Store }

func (withoutPlaces) Traits() store.Traits { return store.Traits{} }

// TestNew refuses at once what would fail each activity.
func TestNew(t *testing.T) {
	l, err := throttle.NewLimiters(throttle.Config{Store: withoutPlaces{memstore.New()}})
	require.NoError(t, err)
	_, err = temporalthrottle.New(l)
	require.ErrorAs(t, err, new(*throttle.ConfigError))
	require.ErrorContains(t, err, "keeps no places: use memstore or redisstore")
	_, err = temporalthrottle.New(nil)
	require.ErrorContains(t, err, "the limiters are missing")
	_, err = temporalthrottle.New(limiters(t, throttle.PerMinute(1)))
	require.NoError(t, err)
}

// TestOtherErrors are those of Reserve, and need no attempt with a delay.
func TestOtherErrors(t *testing.T) {
	t.Parallel()
	gate, err := temporalthrottle.New(limiters(t, throttle.PerMinute(1)))
	require.NoError(t, err)
	_, err = gate.Acquire(t.Context())
	require.ErrorContains(t, err, "context of an activity")
	l, err := throttle.NewLimiters(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    memstore.New(),
		Policies: []throttle.Policy{{Name: "x", Limit: throttle.PerMinute(1)}},
	})
	require.NoError(t, err)
	_, _, err = job{l}.run(t, nil)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.NotEqual(t, temporalthrottle.ErrorType, failed.Type())
}

// TestWorkflow: activities of a workflow are put aside and come again with their places. Each begins once, within the limit.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	const jobs, perSecond = 12, 4
	j := job{limiters(t, throttle.PerSecond(perSecond))}
	var mu sync.Mutex
	var starts []time.Time
	attempts, due := 0, make(map[string]time.Time) // by the activity's ID
	run := func(ctx context.Context) error {
		id := activity.GetInfo(ctx).ActivityID
		mu.Lock()
		attempts++
		wait := time.Until(due[id])
		mu.Unlock()
		time.Sleep(wait) // the environment's clock skips what Temporal would wait
		_, err := j.Run(ctx)
		mu.Lock()
		defer mu.Unlock()
		var later *temporal.ApplicationError
		if errors.As(err, &later) {
			due[id] = time.Now().Add(later.NextRetryDelay())
		} else {
			starts = append(starts, time.Now())
		}
		return err
	}
	env := new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterActivityWithOptions(run, activity.RegisterOptions{Name: "Run"})
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			ScheduleToCloseTimeout: 24 * time.Hour,
			RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1000}, // 0 is 10 in the environment
		})
		var all []workflow.Future
		for range jobs {
			all = append(all, workflow.ExecuteActivity(ctx, "Run"))
		}
		for _, f := range all {
			if err := f.Get(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	t.Logf("%d jobs, %d attempts", jobs, attempts)
	require.Greater(t, attempts, jobs)
	require.Len(t, starts, jobs)
	slices.SortFunc(starts, time.Time.Compare)
	const arrival = 30 * time.Millisecond // between the permit and the look at the clock, on a machine that is busy
	for i := range starts[:jobs-perSecond] {
		require.Greater(t, starts[i+perSecond].Sub(starts[i]), time.Second-arrival, "P1")
	}
}
