package temporalthrottle_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/temporalthrottle"
	"github.com/fleetthrottle/throttle/internal/lab/readme"
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

// A standIn is of a Temporal server what hands out one activity: it keeps the last heartbeat details, and starts another attempt
// after the delay of an error. It shows what the worker of the SDK sends, and in which order.
type standIn struct {
	workflowservice.UnimplementedWorkflowServiceServer
	due  chan struct{} // an attempt is due
	most int32         // attempts; 0: any number

	mu      sync.Mutex
	attempt int32
	details *commonpb.Payloads
	events  []string
	delays  []time.Duration
	benign  int
	cancel  bool // ask the activity to end at its next heartbeat
	done    chan struct{}
}

func (s *standIn) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

func (s *standIn) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

func (s *standIn) PollActivityTaskQueue(ctx context.Context, _ *workflowservice.PollActivityTaskQueueRequest) (*workflowservice.PollActivityTaskQueueResponse, error) {
	select {
	case <-s.due:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt++
	s.events = append(s.events, "attempt")
	now := timestamppb.Now()
	return &workflowservice.PollActivityTaskQueueResponse{
		TaskToken: []byte("token"), ActivityId: "1", Attempt: s.attempt, HeartbeatDetails: s.details,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: "w", RunId: "r"}, WorkflowType: &commonpb.WorkflowType{Name: "w"},
		ActivityType: &commonpb.ActivityType{Name: "Run"}, ScheduledTime: now, StartedTime: now, CurrentAttemptScheduledTime: now,
		StartToCloseTimeout: durationpb.New(time.Minute), ScheduleToCloseTimeout: durationpb.New(time.Hour),
		HeartbeatTimeout: durationpb.New(time.Minute), RetryPolicy: &commonpb.RetryPolicy{MaximumAttempts: s.most},
	}, nil
}

func (s *standIn) RecordActivityTaskHeartbeat(_ context.Context, r *workflowservice.RecordActivityTaskHeartbeatRequest) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.details = r.Details
	s.events = append(s.events, fmt.Sprintf("%d details", len(r.Details.GetPayloads())))
	return &workflowservice.RecordActivityTaskHeartbeatResponse{CancelRequested: s.cancel}, nil
}

func (s *standIn) RespondActivityTaskFailed(_ context.Context, r *workflowservice.RespondActivityTaskFailedRequest) (*workflowservice.RespondActivityTaskFailedResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := r.Failure.GetApplicationFailureInfo()
	s.events = append(s.events, info.GetType())
	delay := info.GetNextRetryDelay().AsDuration()
	s.delays = append(s.delays, delay)
	if info.GetCategory() == enumspb.APPLICATION_ERROR_CATEGORY_BENIGN {
		s.benign++
	}
	time.AfterFunc(delay, func() { s.due <- struct{}{} })
	return &workflowservice.RespondActivityTaskFailedResponse{}, nil
}

func (s *standIn) RespondActivityTaskCanceled(context.Context, *workflowservice.RespondActivityTaskCanceledRequest) (*workflowservice.RespondActivityTaskCanceledResponse, error) {
	s.end("cancelled")
	return &workflowservice.RespondActivityTaskCanceledResponse{}, nil
}

func (s *standIn) RespondActivityTaskCompleted(context.Context, *workflowservice.RespondActivityTaskCompletedRequest) (*workflowservice.RespondActivityTaskCompletedResponse, error) {
	s.end("completed")
	return &workflowservice.RespondActivityTaskCompletedResponse{}, nil
}

func (s *standIn) end(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, how)
	close(s.done)
}

// serve hands the activity to a worker until it has ended.
func (s *standIn) serve(t *testing.T, run any) {
	s.due, s.done = make(chan struct{}, 1), make(chan struct{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	c, err := client.Dial(client.Options{HostPort: listener.Addr().String()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := worker.New(c, "queue", worker.Options{DisableWorkflowWorker: true})
	w.RegisterActivityWithOptions(run, activity.RegisterOptions{Name: "Run"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	s.due <- struct{}{}
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatal("the activity has not ended")
	}
	s.mu.Lock() // for the test, to the end
	t.Cleanup(s.mu.Unlock)
	t.Log(s.events)
}

// TestWorker: a worker of the SDK sends the place before it reports the end of the attempt, and the next attempt redeems it. An
// attempt that had a permit leaves no place behind.
func TestWorker(t *testing.T) {
	t.Parallel()
	l := limiters(t, throttle.PerSecond(1))
	s := new(standIn)

	// The first attempt finds the budget used, however late the worker begins.
	var begins sync.Once
	s.serve(t, func(ctx context.Context) (int, error) {
		begins.Do(func() { use(t, l, 1) })
		return job{l}.Run(ctx)
	})
	require.Equal(t, []string{"attempt", "1 details", temporalthrottle.ErrorType}, s.events[:3])
	require.Equal(t, []string{"attempt", "0 details", "completed"}, s.events[len(s.events)-3:])
	require.Equal(t, len(s.delays), s.benign)
	for _, d := range s.delays {
		require.Positive(t, d)
		require.Less(t, d, 2*time.Second)
	}
}

// TestProgressBeforeThePlace: the SDK holds back heartbeats that follow each other fast. It sends the last one before it
// reports the end of the attempt.
func TestProgressBeforeThePlace(t *testing.T) {
	t.Parallel()
	l := limiters(t, throttle.PerSecond(1))
	use(t, l, 1)
	s := new(standIn)
	s.serve(t, func(ctx context.Context) error {
		if activity.GetInfo(ctx).Attempt == 1 {
			activity.RecordHeartbeat(ctx, "early")
			activity.RecordHeartbeat(ctx, "too early")
		}
		_, err := job{l}.Run(ctx)
		return err
	})
	require.Equal(t, []string{"attempt", "1 details", "1 details", temporalthrottle.ErrorType}, s.events[:4])
	require.Equal(t, []string{"attempt", "0 details", "completed"}, s.events[len(s.events)-3:])
}

// TestLastAttempt: Temporal would end the activity if its last attempt were put aside, so that attempt waits.
func TestLastAttempt(t *testing.T) {
	t.Parallel()
	l := limiters(t, throttle.PerSecond(1))
	use(t, l, 1)
	s := &standIn{most: 1}
	s.serve(t, job{l}.Run)
	require.Empty(t, s.delays)
	require.Equal(t, "completed", s.events[len(s.events)-1])
}

// TestCancelled: an activity that is cancelled ends so, and is not put aside.
func TestCancelled(t *testing.T) {
	t.Parallel()
	l := limiters(t, throttle.PerMinute(1))
	use(t, l, 1)
	s := &standIn{cancel: true}
	s.serve(t, job{l}.Run)
	require.Equal(t, []string{"attempt", "1 details", "cancelled"}, s.events)
}

// TestReadmeCompiles: readers copy the program, so it passes go vet as it stands.
func TestReadmeCompiles(t *testing.T) { readme.Vet(t) }

// A plain converter does not know converter.RawValue: it refuses it, or does nothing with it.
type plain struct {
	converter.DataConverter
	refuses error
}

func (p plain) FromPayloads(from *commonpb.Payloads, into ...any) error {
	for _, v := range into {
		if _, ok := v.(*converter.RawValue); ok {
			return p.refuses
		}
	}
	return p.DataConverter.FromPayloads(from, into...)
}

// TestPlainConverter: details of the activity's own that cannot be read stay, and a place alone is found.
func TestPlainConverter(t *testing.T) {
	t.Parallel()
	for _, refuses := range []error{nil, errors.New("unknown type")} {
		j := job{limiters(t, throttle.PerMinute(1))}
		run := func(before any) (progress int, recorded converter.EncodedValues, err error) {
			env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
			env.SetDataConverter(plain{converter.GetDefaultDataConverter(), refuses})
			env.RegisterActivity(j.Run)
			env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) { recorded = details })
			env.SetHeartbeatDetails(before)
			result, err := env.ExecuteActivity(j.Run)
			if err == nil {
				require.NoError(t, result.Get(&progress))
			}
			return progress, recorded, err
		}
		progress, _, err := run(7)
		require.NoError(t, err)
		require.Equal(t, 7, progress)
		_, recorded, err := run(7)
		var later *temporal.ApplicationError
		require.ErrorAs(t, err, &later)
		require.Equal(t, temporalthrottle.ErrorType, later.Type())
		require.Nil(t, recorded, "its own details stay")

		_, place, err := j.limits.Reserve(throttle.WithMaxWait(t.Context(), time.Millisecond), nil, throttle.Demand{Policy: "api"})
		require.NoError(t, err)
		_, recorded, err = run(map[string]any{"throttle:place": place})
		require.ErrorAs(t, err, &later)
		var kept map[string]*throttle.Place
		require.NoError(t, recorded.Get(&kept))
		require.WithinDuration(t, place.When, kept["throttle:place"].When, time.Second, "it was redeemed")
	}
}

// TestManyDetails: the SDK does not say how many there are.
func TestManyDetails(t *testing.T) {
	t.Parallel()
	l := limiters(t, throttle.PerSecond(1))
	use(t, l, 1)
	s := &standIn{details: payloads(t, 1, 2, 3, 4, 5, 6, 7, 8, 9)}
	s.serve(t, job{l}.Run)
	require.Equal(t, []string{"attempt", "10 details", temporalthrottle.ErrorType}, s.events[:3])
	require.Equal(t, []string{"attempt", "9 details", "completed"}, s.events[len(s.events)-3:])
}

func payloads(t *testing.T, values ...any) *commonpb.Payloads {
	made, err := converter.GetDefaultDataConverter().ToPayloads(values...)
	require.NoError(t, err)
	return made
}

// TestLocalActivity waits in its worker: it has no heartbeat details.
func TestLocalActivity(t *testing.T) {
	t.Parallel()
	j := job{limiters(t, throttle.PerSecond(1))}
	use(t, j.limits, 1)
	env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
	result, err := env.ExecuteLocalActivity(j.Run)
	require.NoError(t, err)
	var progress int
	require.NoError(t, result.Get(&progress))
	require.Equal(t, -1, progress)
}
