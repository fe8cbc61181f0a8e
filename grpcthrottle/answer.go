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

// An Answer says what the status of a call means, and for which of its budgets.
type Answer struct {
	throttle.Answer

	// Policies are those whose budgets it is about, as far as the call has them. A cost, and what
	// is left, are of one budget: name its policy if the call has several. Defaults to nil: all of
	// the call's budgets.
	Policies []string
}

// RetryInfo is the default of [Options.Answer]: RESOURCE_EXHAUSTED with a RetryInfo
// is a refusal that closes all budgets of the call until its delay is over.
//
// Without a RetryInfo it closes nothing: gRPC says the same of a message that is too
// large. Neither does UNAVAILABLE, with or without one: it may come from a single
// backend of many, or from the client's own connection, and a client tries another. Have
// an Answer of your own if your server means all of itself.
func RetryInfo(s *status.Status) (a Answer) {
	if d := RetryDelay(s); d > 0 && s.Code() == codes.ResourceExhausted {
		a.Answer = throttle.Refused(d)
	}
	return a
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

// How long a caller is kept while the fleet is told of an answer, and how long that is
// tried at all.
const (
	maxDelay  = time.Second
	maxReport = 30 * time.Second
)

// learn tells the budgets of a call what read makes of its status. An error of throttle itself, of an
// interceptor inside this one, is no answer of the server.
func learn(ctx context.Context, permit *throttle.Permit, err error, read func(*status.Status) Answer) {
	s, ok := status.FromError(err)
	if err == nil || !ok || errors.Is(err, throttle.ErrLimited) {
		return
	}
	a := read(s)
	if a.Answer == (throttle.Answer{}) {
		return
	}

	told := make(chan struct{})
	go func() {
		defer close(told)

		// The caller's context may end with the call: the fleet must know all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(max(a.Close, maxDelay), maxReport))
		defer cancel()
		if len(a.Policies) == 0 {
			_ = permit.Tell(ctx, a.Answer) // Observe is told of an error
		}
		for _, name := range a.Policies {
			_ = permit.Tell(ctx, a.Answer, name) // the call may not have it
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
