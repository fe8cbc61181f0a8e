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

const (
	maxDelay  = time.Second      // the longest that a call waits until its answer is reported to the store
	maxReport = 30 * time.Second // the longest that a report goes on
)

// learn reports the Answer to err, the error of a call, to the call's budgets. It returns err, joined with a mistake in the
// Answer if there is one. It waits for the report for maxDelay at most, and not after the end of ctx. It reports nothing if err is nil, no status, or
// an error of throttle itself, out of an inner interceptor.
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
		// The caller's context may end with the call, and the fleet must know all the same. When the budget would open again the
		// report is of no use any more.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(max(a.Close, maxDelay), maxReport))
		defer cancel()
		told <- i.tell(ctx, permit, a)
	}()

	// Do not keep the caller for longer: the store may be away. The report goes on.
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

		// A mistake in the field Name says that the permit has no budget of that policy.
		if wrong, ok := errors.AsType[*throttle.ConfigError](err); ok && wrong.Field == "Name" {
			if known[name] {
				continue // Policies may name policies that the call does not fall under
			}
			err = fmt.Errorf("the limiters have no policy %q: see Policies", name)
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// mistakeIn returns err if it is about a mistake in an answer. For nil, and for a failure of the store, it returns nil.
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

// request returns the request that policies see in place of a call. Its host is host or, if that is "", the authority of the call.
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

// authority returns the host that a call names to its server: that of the call's options or, without one, that of the
// target, such as dns:///example.com:443. As in gRPC it is localhost for sockets of the machine, and localhost with the port for a
// port alone. For a target that cannot be parsed it is "".
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

	// The host is the path of dns:///example.com, and the opaque part of dns:example.com.
	host := strings.TrimPrefix(u.Path+u.Opaque, "/")
	if strings.HasPrefix(host, ":") {
		return "localhost" + host // a port alone
	}
	return host
}
