package grpcthrottle

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
)

// Options change what New does. The zero value of each field is useful.
type Options struct {
	// Host is the host that patterns are matched against. Defaults to the authority: the target's
	// without its scheme, or the authority of [grpc.CallAuthority].
	Host string

	// Answer tells the consequences of a failed call's status for the call's budgets. Defaults to
	// [RetryInfo]. If its result is invalid (a policy that the limiters do not have, a negative
	// cost, a quota for several budgets), the mistake is in the error of the call, whose status
	// stays, and no budget changes.
	Answer func(*status.Status) Answer
}

// Interceptors hold the calls of a client. They are safe for concurrent use, by several
// connections, and have nothing to close.
type Interceptors struct {
	limits  *throttle.Limiters
	options Options
}

// New returns interceptors that hold calls to the policies of limits.
func New(limits *throttle.Limiters, o Options) *Interceptors {
	i := &Interceptors{limits: limits, options: o}
	if i.options.Answer == nil {
		i.options.Answer = RetryInfo
	}
	return i
}

// DialOptions returns the options for [grpc.NewClient]: both interceptors, inside of the
// interceptors of earlier options, and no retries by a service config, because interceptors do not
// see them. An interceptor that retries must come before.
func (i *Interceptors) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(i.Unary), grpc.WithChainStreamInterceptor(i.Stream), grpc.WithDisableRetry(),
	}
}

// Unary is a [grpc.UnaryClientInterceptor]. What the call holds of a Concurrency limit
// ends with the call.
func (i *Interceptors) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	permit, err := i.acquire(ctx, method, cc, opts)
	if err != nil {
		return err
	}
	defer permit.Release()
	err = invoke(ctx, method, req, reply, cc, opts...)
	return i.learn(ctx, permit, err)
}

// Stream is a [grpc.StreamClientInterceptor]. A stream costs what its policies say once,
// when it begins. What it holds of a Concurrency limit ends with the stream, as gRPC
// defines it: with the answer's status or the context, or when the connection is closed.
func (i *Interceptors) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	permit, err := i.acquire(ctx, method, cc, opts)
	if err != nil {
		return nil, err
	}

	// Without a stream nothing else releases the permit.
	begun := false
	defer func() {
		if !begun {
			permit.Release()
		}
	}()

	// Append to a copy: a concurrent call may use the same slice.
	opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { permit.Release() }))
	s, err := stream(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, i.learn(ctx, permit, err)
	}

	begun = true
	return &clientStream{ClientStream: s, ended: func(err error) error { return i.learn(ctx, permit, err) }}, nil
}

// A clientStream learns from the stream's status.
type clientStream struct {
	grpc.ClientStream
	ended func(error) error // learns from the error that ends the stream, and returns it
}

// RecvMsg implements [grpc.ClientStream].
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		err = s.ended(err) // gRPC allows no concurrent RecvMsg, and none after the last
	}
	return err
}

// acquire waits until the call may begin: for its budgets, and then for a connection, because
// a start that waits for a connection becomes too old. Its error has a gRPC status.
func (i *Interceptors) acquire(ctx context.Context, method string, cc *grpc.ClientConn, opts []grpc.CallOption) (*throttle.Permit, error) {
	if i.limits == nil {
		return nil, status.Error(codes.Internal, "grpcthrottle: New was given no limits: check the error of throttle.NewLimiters")
	}

	permit, err := i.limits.AcquireRequest(request(ctx, i.options.Host, method, cc, opts))
	if err != nil {
		return nil, statusOf(err)
	}

	// A start that has waited for a connection may be too old by now.
	if waited := connect(ctx, cc); waited {
		if err := permit.Renew(ctx); err != nil {
			return nil, statusOf(err)
		}
	}

	return permit, nil
}

// connect waits until the connection is ready, the attempt to connect has failed, or ctx has ended. It returns no error,
// because the call itself then fails with the error. waited reports whether the connection was not ready at first.
func connect(ctx context.Context, cc *grpc.ClientConn) (waited bool) {
	for {
		switch s := cc.GetState(); s {
		case connectivity.Ready, connectivity.TransientFailure, connectivity.Shutdown:
			return waited
		default:
			cc.Connect()
			waited = true
			if !cc.WaitForStateChange(ctx, s) {
				return waited
			}
		}
	}
}
