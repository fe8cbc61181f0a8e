package grpcthrottle

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
)

// A Penalty says which budgets of a call must stay closed, and for how long.
type Penalty struct {
	Length   time.Duration // 0 or less: none
	Policies []string      // those of which the call has budgets; none: all of the call's
}

// RetryInfo is the default of [Options.Penalty]: RESOURCE_EXHAUSTED with a RetryInfo
// closes all budgets of the call until its delay is over.
//
// Without a RetryInfo it closes nothing: gRPC says the same of a message that is too
// large. Neither does UNAVAILABLE, with or without one: it may come from a single
// backend of many, or from the client's own connection, and a client tries another. Have
// a Penalty of your own if your server means all of itself.
func RetryInfo(s *status.Status) (p Penalty) {
	if s.Code() == codes.ResourceExhausted {
		p.Length = RetryDelay(s)
	}
	return p
}

// RetryDelay returns the delay of a status' RetryInfo; 0 if there is none.
func RetryDelay(s *status.Status) time.Duration {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// How long a caller is kept while the fleet is told of a penalty, and how long that is
// tried at all.
const (
	maxDelay  = time.Second
	maxReport = 30 * time.Second
)

// learn closes budgets if penalty says so of a call's status. An error of throttle itself, of an
// interceptor inside this one, is no refusal of the server.
func learn(ctx context.Context, permit *throttle.Permit, err error, penalty func(*status.Status) Penalty) {
	s, ok := status.FromError(err)
	if err == nil || !ok || errors.Is(err, throttle.ErrLimited) {
		return
	}
	p := penalty(s)
	if p.Length <= 0 {
		return
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		// The caller's context may end with the call: the fleet must know all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(max(p.Length, maxDelay), maxReport))
		defer cancel()
		if len(p.Policies) == 0 {
			_ = permit.Penalize(ctx, p.Length) // Observe is told of an error
		}
		for _, name := range p.Policies {
			_ = permit.Penalize(ctx, p.Length, name) // the call may not have it
		}
	}()
	timer := time.NewTimer(maxDelay)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
	case <-ctx.Done():
	}
}
