package grpcthrottle

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fleetthrottle/throttle"
)

// An Error is why a call was not made, as a status:
//
//	RESOURCE_EXHAUSTED           a limit, with RetryInfo if the wait is known: *throttle.LimitError
//	CANCELLED, DEADLINE_EXCEEDED the call's context ended while the call waited
//	UNAVAILABLE                  the store did not answer: *throttle.StoreError
//	INTERNAL                     a policy cannot compute the call's cost: *throttle.ConfigError
//
// The server has seen nothing of the call, and no budget was charged.
type Error struct {
	Err error // of throttle, for errors.As and errors.Is

	status *status.Status
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns throttle's error.
func (e *Error) Unwrap() error { return e.Err }

// GRPCStatus is how [status.FromError] and [status.Code] see the error.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// statusOf returns an error of throttle as an *Error with its status.
func statusOf(err error) error {
	s := status.New(codeOf(err), err.Error())
	if limited, ok := errors.AsType[*throttle.LimitError](err); ok && limited.RetryAfter > 0 && limited.RetryAfter != throttle.Never {
		if more, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(limited.RetryAfter)}); err == nil {
			s = more
		}
	}
	return &Error{err, s}
}

// codeOf returns the gRPC code for an error of throttle, as [Error] lists them, and Internal for an unknown error.
func codeOf(err error) codes.Code {
	var failed *throttle.StoreError
	switch {
	case errors.Is(err, throttle.ErrLimited):
		return codes.ResourceExhausted
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.As(err, &failed):
		return codes.Unavailable
	}
	return codes.Internal
}
