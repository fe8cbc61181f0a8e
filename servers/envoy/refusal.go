package envoy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"

	"github.com/fleetthrottle/throttle"
)

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

// refusalOf returns the refusal for an error before the start.
func refusalOf(err error) *refusal {
	var place *placeError
	var full *throttle.LimitError
	var mistake *throttle.ConfigError
	switch {
	case errors.As(err, &place):
		r := answer(http.StatusServiceUnavailable, place.reason, place.text)
		r.Policy, r.after = place.policy, place.after
		return r

	case errors.As(err, &full):
		r := answer(http.StatusTooManyRequests, noRoom, full.Error())
		r.Type, r.Policy, r.Violated = quotaExceeded, full.Policy, []string{full.Policy}
		r.after = retryAfter(full)
		return r

	case errors.As(err, new(*throttle.StoreError)):
		r := answer(http.StatusServiceUnavailable, storeAway, "it is unknown whether there is room: the store of the budgets does not answer")
		r.after = soon
		return r

	case errors.As(err, new(*throttle.UnmatchedError)):
		return answer(http.StatusForbidden, unreadable, err.Error())
	case errors.As(err, &mistake):
		r := answer(http.StatusInternalServerError, unreadable, "the policy cannot read this request")
		r.Policy = mistake.Policy
		return r

	case errors.Is(err, errCut):
		return refusalOf(errStopping)
	case errors.Is(err, errSilent):
		return &refusal{Detail: err.Error(), reason: malformed, code: codes.DeadlineExceeded}
	}

	return outOfOrder(err.Error())
}

// retryAfter returns when a caller should come again, or 0 if no wait helps. Nobody knows when work in flight ends.
func retryAfter(full *throttle.LimitError) time.Duration {
	switch full.RetryAfter {
	case throttle.Never:
		return 0
	case 0:
		return soon
	}
	return full.RetryAfter
}

// refuse has Envoy answer the request itself.
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
