package envoy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/internal/problem"
)

// A refusal is why a request is not sent on. Its problem is the body of an immediate response.
type refusal struct {
	problem.Problem
	reason reason
	code   codes.Code // the stream fails with this code; OK stands for an immediate response
}

// answer returns the refusal of a request that Envoy answers with a status.
func answer(status int, why reason, detail string) *refusal {
	return &refusal{Problem: *problem.New(status, detail), reason: why}
}

// outOfOrder returns the refusal of a stream that does not obey the protocol: the stream fails, and Envoy answers as
// status_on_error says.
func outOfOrder(detail string) *refusal { return failed(detail, codes.InvalidArgument) }

// failed returns the refusal of a stream that fails with a code.
func failed(detail string, code codes.Code) *refusal {
	return &refusal{Problem: problem.Problem{Detail: detail}, reason: malformed, code: code}
}

// illegible returns the refusal of a request that no policy could match.
func illegible(detail string) *refusal { return answer(http.StatusBadRequest, malformed, detail) }

// refusalOf returns the refusal for an error before the start.
func refusalOf(err error) *refusal {
	if known := problem.Of(err); known != nil {
		return refusalAs(known, err)
	}

	switch {
	case errors.As(err, new(*throttle.UnmatchedError)):
		return answer(http.StatusForbidden, unreadable, err.Error())
	case errors.Is(err, errCut):
		return refusalOf(inbound.ErrStopping)
	case errors.Is(err, errSilent):
		return failed(err.Error(), codes.DeadlineExceeded)
	}

	return outOfOrder(err.Error())
}

// refusalAs returns the refusal with the problem of an error.
func refusalAs(p *problem.Problem, err error) *refusal {
	r := &refusal{Problem: *p, reason: heldFull}
	var full *throttle.LimitError
	switch {
	case errors.As(err, &full):
		r.reason = noRoom
		if full.RetryAfter == 0 {
			r.RetryAfter = inbound.Soon // nobody knows when work in flight ends
		}

	case errors.Is(err, inbound.ErrStopping):
		r.reason = stopping
	case errors.As(err, new(*throttle.StoreError)):
		r.reason = storeAway
	case errors.As(err, new(*throttle.ConfigError)):
		r.reason = unreadable
	}

	return r
}

// refuse has Envoy answer the request itself.
func (c *conversation) refuse(r *refusal) error {
	body, _ := json.Marshal(&r.Problem) // never fails
	fields := make(http.Header)
	r.SetHeader(fields, problem.Kind)

	headers := new(extprocv3.HeaderMutation)
	for name := range fields {
		headers.SetHeaders = append(headers.SetHeaders, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(fields.Get(name))},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
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

// isGRPC reports whether headers are those of a gRPC call.
func isGRPC(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/grpc") }
