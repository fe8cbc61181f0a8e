package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// via is how the proxy names itself in the header Via.
const via = "1.1 throttle"

// passedProxy reports whether a request was sent by a proxy like this.
func passedProxy(h http.Header) bool {
	for _, list := range h["Via"] {
		for element := range strings.SplitSeq(list, ",") {
			if fields := strings.Fields(element); len(fields) > 1 && fields[1] == "throttle" {
				return true
			}
		}
	}
	return false
}

// A problem is an answer of the proxy itself, as RFC 9457 has it. It names no URL and repeats
// nothing of the request.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Policy string `json:"policy,omitempty"`

	retryAfter time.Duration // 0: the answer does not say
	timing     string        // "": the answer does not say
}

func newProblem(status int, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// write sends the answer.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Via", via)
	if p.retryAfter > 0 {
		seconds := int64((p.retryAfter-1)/time.Second) + 1 // rounded up
		h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	if p.timing != "" {
		h.Set("Server-Timing", p.timing)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a caller that has gone needs no answer
}

// answerError answers a request that has no answer of the upstream, because of err.
func answerError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		panic(http.ErrAbortHandler) // the caller has gone: its connection ends without an answer
	}
	p := problemOf(err)
	if c := callOf(r.Context()); c != nil {
		p.timing = c.timing()
	}
	p.write(w)
}

// problemOf returns what an error means to the caller.
func problemOf(err error) *problem {
	var full *throttle.LimitError
	var away *throttle.StoreError
	var mistake *throttle.ConfigError
	switch {
	case errors.As(err, &full):
		p := newProblem(http.StatusTooManyRequests, full.Error())
		p.Policy = full.Policy
		if full.RetryAfter != throttle.Never {
			p.retryAfter = full.RetryAfter
		}
		return p
	case errors.As(err, &away):
		return newProblem(http.StatusServiceUnavailable, "it is unknown whether there is room: the store of the budgets does not answer")
	case errors.As(err, &mistake):
		p := newProblem(http.StatusInternalServerError, "the policy cannot read this request")
		p.Policy = mistake.Policy
		return p
	}
	return unreached(err)
}

// unreached returns the answer of a request that an upstream has not answered.
func unreached(err error) *problem {
	var timeout net.Error
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errInside):
		return newProblem(http.StatusForbidden, "the host is at an address that is not public, and is not listed as private")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return newProblem(http.StatusGatewayTimeout, "there was no answer in time")
	case errors.As(err, &name):
		return newProblem(http.StatusBadGateway, "the name of the upstream has no address")
	case errors.As(err, &certificate):
		return newProblem(http.StatusBadGateway, "the certificate of the upstream is not trusted")
	}
	return newProblem(http.StatusBadGateway, "the upstream could not be reached")
}
