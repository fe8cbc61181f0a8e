package grpcthrottle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
)

// An Answer tells the consequences of a call's status for the call's budgets.
type Answer struct {
	throttle.Answer

	// Policies are the policies of the affected budgets, as far as the call has them. A cost or a
	// remaining quota belongs to one budget: name its policy if the call has several. Defaults to
	// nil: all of the call's budgets.
	Policies []string
}

// RetryInfo is the default of [Options.Answer]: RESOURCE_EXHAUSTED with a RetryInfo is a refusal
// that closes all budgets of the call until its delay is over.
//
// RESOURCE_EXHAUSTED without a RetryInfo closes nothing: gRPC uses it for messages above the size
// limit as well. UNAVAILABLE closes nothing either: it may come from a single backend of many, or
// from the client's own connection, and clients try a different backend. Set Options.Answer if your
// server's UNAVAILABLE concerns the whole server.
func RetryInfo(s *status.Status) (a Answer) {
	if d := RetryDelay(s); d > 0 && s.Code() == codes.ResourceExhausted {
		a.Answer = throttle.Refused(d)
	}
	return a
}

// RetryDelay returns the delay of a status' RetryInfo, or 0 without one.
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

// learn reports the Answer to the budgets of a call and returns the call's error, joined with any mistake in the
// Answer. It waits for the report for maxDelay at most. An error of throttle itself, out of an inner interceptor, is no
// answer of the server.
func (i *Interceptors) learn(ctx context.Context, permit *throttle.Permit, err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || errors.Is(err, throttle.ErrLimited) || errors.As(err, new(*Error)) {
		return err
	}

	a, wrong := i.answer(s)
	if wrong != nil {
		return &wrongAnswerError{err, wrong, s}
	}
	if a.Answer == (throttle.Answer{}) {
		return err
	}

	told := make(chan error, 1)
	go func() {
		// The caller's context may end with the call: the fleet must know all the same. After the time of the closing the
		// report is of no use.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(max(a.Close, maxDelay), maxReport))
		defer cancel()
		told <- i.tell(ctx, permit, a)
	}()

	// Keep the caller for a moment only: the store may be away.
	timer := time.NewTimer(maxDelay)
	defer timer.Stop()

	select {
	case wrong = <-told:
	case <-timer.C:
	case <-ctx.Done():
	}

	if wrong != nil {
		return &wrongAnswerError{err, wrong, s}
	}

	return err
}

// answer calls the Answer of the options. A panic becomes an error.
func (i *Interceptors) answer(s *status.Status) (a Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panicked with a %T", v)
		}
	}()
	return i.options.Answer(s), nil
}

// tell reports an answer to the budgets that it names, or to all budgets of the permit. The error is a mistake in the
// answer. A failure of the store is no error here, because Observe reports the failure.
func (i *Interceptors) tell(ctx context.Context, permit *throttle.Permit, a Answer) error {
	if len(a.Policies) == 0 {
		return mistakeIn(permit.Tell(ctx, a.Answer))
	}

	known := make(map[string]bool)
	for _, p := range i.limits.Policies() {
		known[p.Name] = true
	}

	var errs []error
	for _, name := range a.Policies {
		err := mistakeIn(permit.Tell(ctx, a.Answer, name))
		if wrong, ok := errors.AsType[*throttle.ConfigError](err); ok && wrong.Field == "Name" {
			if known[name] {
				continue // the call has no budget of the policy
			}
			err = fmt.Errorf("the limiters have no policy %q: see Policies", name)
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// mistakeIn returns err if it says that an answer cannot be, and not that the store was not told.
func mistakeIn(err error) error {
	if _, ok := errors.AsType[*throttle.ConfigError](err); ok {
		return err
	}
	return nil
}

// A wrongAnswerError is the error of a call together with a mistake in the program's own Answer
// function. Its status is the status of the call.
type wrongAnswerError struct {
	call, wrong error
	status      *status.Status
}

// Error implements error.
func (e *wrongAnswerError) Error() string {
	return fmt.Sprintf("%v (grpcthrottle: Options.Answer: %v)", e.call, e.wrong)
}

// Unwrap returns both errors.
func (e *wrongAnswerError) Unwrap() []error { return []error{e.call, e.wrong} }

// GRPCStatus is how [status.FromError] and [status.Code] see the error.
func (e *wrongAnswerError) GRPCStatus() *status.Status { return e.status }

// request returns the request that policies see of a call. Its host is the given one, or
// the authority if that is "".
func request(ctx context.Context, host, method string, cc *grpc.ClientConn, opts []grpc.CallOption) *http.Request {
	if host == "" {
		host = authority(cc.CanonicalTarget(), opts)
	}
	req := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: host, Path: method}, Host: host,
		Header: make(http.Header),
	}).WithContext(ctx)

	// Policies read keys from the metadata as from a header.
	md, _ := metadata.FromOutgoingContext(ctx)
	for name, values := range md {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	return req
}

// authority returns the host that a call names to its server, as far as a target such as
// dns:///example.com:443 and the call's options tell, or "" for a target that cannot be parsed. It is
// localhost for sockets of the machine and for a port alone, as in gRPC.
func authority(target string, opts []grpc.CallOption) string {
	// The options of the call stand behind those of the connection, and the last one counts.
	override := ""
	for _, o := range opts {
		if a, ok := o.(grpc.AuthorityOverrideCallOption); ok {
			override = a.Authority
		}
	}
	if override != "" {
		return override
	}

	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	if strings.HasPrefix(u.Scheme, "unix") {
		return "localhost"
	}

	host := strings.TrimPrefix(u.Path+u.Opaque, "/")
	if strings.HasPrefix(host, ":") {
		return "localhost" + host // a port alone
	}
	return host
}
