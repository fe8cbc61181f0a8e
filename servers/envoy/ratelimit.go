package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/envoy/internal/inbound"
	"github.com/fleetthrottle/throttle/store"
)

const (
	// maxDescriptors is how many descriptors one call may have, as many as a permit of the waiting API has demands.
	maxDescriptors = 32

	// answerTime is how long before the deadline of its call a start must come, so that the answer arrives in time.
	answerTime = 10 * time.Millisecond
)

// ShouldRateLimit serves the rate limit service. Each descriptor is a demand: the entry "policy" names a policy, or the
// domain does if there is no such entry; the entry "key" is the key, and "share" the share. hits_addend is the cost. All
// descriptors are booked together, in one step. The call is held until there is room, for [Config.MaxWait] at most, and
// not longer than until the deadline of the call: timeout of the filter. Without a start it answers OVER_LIMIT, or fails
// if the store does not answer, if the caller leaves, and with InvalidArgument for descriptors that are wrong.
func (s *Server) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	demands, err := s.demandsOf(r)
	if err != nil {
		s.counts.refused[malformed].Add(1)
		s.tellUnfit("ShouldRateLimit: " + err.Error())
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	wait := s.c.MaxWait
	if deadline, ok := ctx.Deadline(); ok && wait > 0 {
		wait = min(wait, time.Until(deadline)-answerTime)
		if wait <= 0 {
			wait = throttle.NoWait // 0 would be the default
		}
	}

	held, place, err := s.queue.Enter(throttle.WithMaxWait(ctx, wait))
	if err != nil {
		return s.withoutStart(ctx, held, demands, err)
	}
	defer place.Leave()

	permit, err := s.c.Limiters.Acquire(held, demands...)
	if err == nil && ctx.Err() != nil {
		// Nobody gets the answer, so the start must not be lost.
		permit.Cancel()
		err = ctx.Err()
	}
	if err != nil {
		return s.withoutStart(ctx, held, demands, err)
	}

	return answerTo(demands, func(*throttle.Demand) bool { return false }, 0), nil
}

// withoutStart returns OVER_LIMIT or an error to a call that has no start because of err, and counts the reason. held is
// the context of the wait, which the queue may have ended.
func (s *Server) withoutStart(ctx, held context.Context, demands []throttle.Demand, err error) (*ratelimitv3.RateLimitResponse, error) {
	var full *throttle.LimitError
	refused, noPlace := queueRefusal(held, err)
	switch {
	case noPlace:
		s.counts.refused[reasonOf(refused)].Add(1)
		return answerTo(demands, func(*throttle.Demand) bool { return true }, refused.RetryAfter), nil
	case errors.As(err, &full):
		s.counts.refused[noRoom].Add(1)
		return answerTo(demands, func(d *throttle.Demand) bool { return d.Policy == full.Policy }, retryAfter(full)), nil

	case ctx.Err() != nil:
		s.counts.left.Add(1)
		return nil, status.FromContextError(ctx.Err()).Err()
	case errors.As(err, new(*throttle.StoreError)):
		s.counts.refused[storeAway].Add(1)
		return nil, status.Error(codes.Unavailable, "it is unknown whether there is room: the store of the budgets does not answer")
	}

	s.counts.refused[malformed].Add(1)
	s.tellUnfit("ShouldRateLimit: " + err.Error())
	return nil, status.Error(codes.InvalidArgument, err.Error())
}

// answerTo returns an answer with one status for each demand: OVER_LIMIT for the demands that isOver selects, otherwise OK.
// after is how long until there is room, 0 if unknown.
func answerTo(demands []throttle.Demand, isOver func(*throttle.Demand) bool, after time.Duration) *ratelimitv3.RateLimitResponse {
	answer := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	for i := range demands {
		one := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
		if isOver(&demands[i]) {
			answer.OverallCode, one.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT, ratelimitv3.RateLimitResponse_OVER_LIMIT
			if after > 0 {
				one.DurationUntilReset = durationpb.New(after)
			}
		}
		answer.Statuses = append(answer.Statuses, one)
	}

	if after > 0 {
		answer.ResponseHeadersToAdd = []*corev3.HeaderValue{{Key: "retry-after", Value: wholeSeconds(after)}}
	}

	return answer
}

// demandsOf returns the demands that the descriptors of a call mean, or an error that lists all mistakes.
func (s *Server) demandsOf(r *ratelimitv3.RateLimitRequest) ([]throttle.Demand, error) {
	if n := len(r.GetDescriptors()); n == 0 || n > maxDescriptors {
		return nil, fmt.Errorf("the call has %d descriptors: use 1 to %d", n, maxDescriptors)
	}

	policies := s.c.Limiters.Policies()
	var demands []throttle.Demand
	var mistakes []error
	for i, d := range r.GetDescriptors() {
		demand, wrong := demandOf(r, d)
		at := slices.IndexFunc(policies, func(p throttle.Policy) bool { return p.Name == demand.Policy })
		switch {
		case wrong != nil:
		case at < 0:
			wrong = errors.New(`no policy has this name: set the entry "policy", or the domain, to the name of a policy`)
		case policies[at].Limit.Kind() == store.KindConcurrency:
			wrong = fmt.Errorf("policy %q counts what is in flight, and nobody tells this service of the end of a request: use external processing", demand.Policy)
		}

		if wrong != nil {
			mistakes = append(mistakes, fmt.Errorf("descriptor %d: %w", i+1, wrong))
		}
		demands = append(demands, demand)
	}

	return demands, errors.Join(mistakes...)
}

// demandOf returns the demand that a descriptor means, or an error with the demand as far as it was read.
func demandOf(r *ratelimitv3.RateLimitRequest, d *descriptorv3.RateLimitDescriptor) (throttle.Demand, error) {
	// The hits_addend of the call cannot be left out, so its 0 stands for 1. A 0 of the descriptor itself is meant.
	demand := throttle.Demand{Policy: r.GetDomain(), Cost: int(min(max(1, r.GetHitsAddend()), math.MaxInt32))}
	switch own := d.GetHitsAddend(); {
	case d.GetIsNegativeHits():
		return demand, errors.New("is_negative_hits is set: a start cannot be given back here")
	case own == nil:
	case own.GetValue() == 0:
		demand.Cost = throttle.Free
	default:
		demand.Cost = int(min(own.GetValue(), math.MaxInt32))
	}

	seen := make(map[string]bool)
	for _, e := range d.GetEntries() {
		if seen[e.GetKey()] {
			return demand, fmt.Errorf("the entry %.64q comes twice", e.GetKey())
		}
		seen[e.GetKey()] = true

		switch e.GetKey() {
		case "policy":
			demand.Policy = e.GetValue()
		case "key":
			demand.Key = e.GetValue()
		case "share":
			demand.Share = e.GetValue()
		default:
			return demand, fmt.Errorf(`the entry %.64q is unknown: use "policy", "key" and "share"`, e.GetKey())
		}
	}

	if d.GetLimit() != nil {
		return demand, errors.New("limit is set: limits are those of the policies")
	}

	return demand, nil
}

// Observe tells the [Server] of a request which budget holds the request, for [Config.HeldPerBudget] and [Server.Stop].
// Set it as [throttle.Config.Observe] of the server's transport and limiters, or call it there with the same context.
// Safe for concurrent use.
func Observe(ctx context.Context, e throttle.Event) { inbound.Observe(ctx, e) }

// queueRefusal returns the refusal of the queue that kept a request from waiting, or ended its wait, if there is one. ctx is
// the context that the queue gave the request.
func queueRefusal(ctx context.Context, err error) (r *inbound.Refusal, ok bool) {
	if errors.As(err, &r) {
		return r, true
	}
	ok = errors.As(context.Cause(ctx), &r)
	return r, ok
}

// reasonOf returns the reason of a refusal of the queue.
func reasonOf(r *inbound.Refusal) reason {
	if r == inbound.ErrStopping {
		return stopping
	}
	return heldFull
}

// A refusal is why a request is not sent on. As JSON it is the body of an immediate response, in the form of RFC 9457,
// which is the form of the refusals of "throttle proxy".
type refusal struct {
	Type     string   `json:"type,omitempty"` // "" if the status says all
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Policy   string   `json:"policy,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // of quotaExceeded

	reason reason
	after  time.Duration // for Retry-After, 0 if unknown
	code   codes.Code    // the stream fails with this code; OK stands for an immediate response
}

// quotaExceeded is the type that IANA has for a limit without room.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// answer returns the refusal of a request that Envoy answers with a status.
func answer(status int, why reason, detail string) *refusal {
	return &refusal{Title: http.StatusText(status), Status: status, Detail: detail, reason: why}
}

// outOfOrder returns the refusal of a stream that does not obey the protocol: the stream fails, and Envoy answers as
// status_on_error says.
func outOfOrder(detail string) *refusal {
	return &refusal{Detail: detail, reason: malformed, code: codes.InvalidArgument}
}

// illegible returns the refusal of a request that no policy could match.
func illegible(detail string) *refusal { return answer(http.StatusBadRequest, malformed, detail) }

// refusalOf returns the refusal of a request that has no start because of err.
func refusalOf(err error) *refusal {
	var queue *inbound.Refusal
	var full *throttle.LimitError
	var mistake *throttle.ConfigError
	switch {
	case errors.As(err, &queue):
		r := answer(http.StatusServiceUnavailable, reasonOf(queue), queue.Error())
		r.Policy, r.after = queue.Policy, queue.RetryAfter
		return r

	case errors.As(err, &full):
		r := answer(http.StatusTooManyRequests, noRoom, full.Error())
		r.Type, r.Policy, r.Violated = quotaExceeded, full.Policy, []string{full.Policy}
		r.after = retryAfter(full)
		return r

	case errors.As(err, new(*throttle.StoreError)):
		r := answer(http.StatusServiceUnavailable, storeAway, "it is unknown whether there is room: the store of the budgets does not answer")
		r.after = inbound.Soon
		return r

	case errors.As(err, new(*throttle.UnmatchedError)):
		return answer(http.StatusForbidden, unreadable, err.Error())
	case errors.As(err, &mistake):
		r := answer(http.StatusInternalServerError, unreadable, "the policy cannot read this request")
		r.Policy = mistake.Policy
		return r

	case errors.Is(err, errCut):
		return refusalOf(inbound.ErrStopping)
	case errors.Is(err, errSilent):
		return &refusal{Detail: err.Error(), reason: malformed, code: codes.DeadlineExceeded}
	}

	return outOfOrder(err.Error())
}

// retryAfter returns after how long a caller should come again: [inbound.Soon] if nobody knows, as under Concurrency, and 0 if
// no wait helps.
func retryAfter(full *throttle.LimitError) time.Duration {
	switch full.RetryAfter {
	case throttle.Never:
		return 0
	case 0:
		return inbound.Soon
	}
	return full.RetryAfter
}

// refuse sends Envoy an immediate response, with which Envoy answers the request itself.
func (c *conversation) refuse(r *refusal) error {
	body, _ := json.Marshal(r) // never fails
	headers := new(extprocv3.HeaderMutation)
	set := func(name, value string) {
		headers.SetHeaders = append(headers.SetHeaders, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}

	set("content-type", "application/problem+json")
	set("cache-control", "no-store")
	set("via", "1.1 throttle")
	if r.after > 0 {
		set("retry-after", wholeSeconds(r.after))
	}

	// The details stand in Envoy's access log as RESPONSE_CODE_DETAILS.
	now := &extprocv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)}, Headers: headers, Body: body, Details: "throttle_" + reasonNames[r.reason],
	}

	// Without a status of its own Envoy makes UNAVAILABLE of a 429, which clients of gRPC repeat at once.
	if c.isGRPC && r.Status == http.StatusTooManyRequests {
		now.GrpcStatus = &extprocv3.GrpcStatus{Status: uint32(codes.ResourceExhausted)}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = nil
	return c.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: now}})
}

// wholeSeconds returns a duration above 0 in whole seconds, rounded up.
func wholeSeconds(d time.Duration) string { return strconv.FormatInt(int64((d-1)/time.Second)+1, 10) }

// isGRPC reports whether headers are those of a gRPC call.
func isGRPC(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/grpc") }
