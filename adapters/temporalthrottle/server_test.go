package temporalthrottle_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/temporalthrottle"
)

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
	use(t, l, 1)
	s := new(standIn)
	s.serve(t, job{l}.Run)
	require.Equal(t, []string{"attempt", "1 details", temporalthrottle.ErrorType}, s.events[:3])
	require.Equal(t, []string{"attempt", "0 details", "completed"}, s.events[len(s.events)-3:])
	require.Equal(t, len(s.delays), s.benign)
	for _, d := range s.delays {
		require.Positive(t, d)
		require.Less(t, d, 2*time.Second)
	}
}

// TestProgressBeforeThePlace: the SDK holds heartbeats back that follow each other fast. It sends the last one before it
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
