package envoy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fleetthrottle/throttle"
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
// descriptors are booked together, in one step. The call is held until there is room, or until the deadline of the
// call: timeout of the filter.
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
			wait = throttle.NoWait
		}
	}

	ended, end := context.WithCancelCause(ctx)
	defer end(nil)
	held, p, err := s.hold(ended, end, wait, throttle.PriorityNormal)
	if err == nil {
		defer p.leave()
		var permit *throttle.Permit
		permit, err = s.c.Limiters.Acquire(held, demands...)
		if err == nil && ctx.Err() == nil {
			return answerTo(demands, func(*throttle.Demand) bool { return false }, 0), nil
		}
		if err == nil {
			// Nobody gets the answer, so the start must not be lost.
			permit.Cancel()
			err = ctx.Err()
		}
	}

	return s.overLimit(ctx, ended, demands, err)
}

// overLimit returns the answer to a call that has no start because of err.
func (s *Server) overLimit(ctx, ended context.Context, demands []throttle.Demand, err error) (*ratelimitv3.RateLimitResponse, error) {
	var full *throttle.LimitError
	place, placeless := asPlaceError(ended, err)
	switch {
	case placeless:
		s.counts.refused[place.reason].Add(1)
		return answerTo(demands, func(*throttle.Demand) bool { return true }, place.after), nil
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

// answerTo returns an answer with one status for each demand. after is how long until there is room, 0 if unknown.
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

// demandOf returns the demand that a descriptor means.
func demandOf(r *ratelimitv3.RateLimitRequest, d *descriptorv3.RateLimitDescriptor) (throttle.Demand, error) {
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
