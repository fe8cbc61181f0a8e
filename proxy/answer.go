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

// quotaExceeded is the type of problem that IANA has for a limit without room.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A problem is an answer of the proxy itself, as RFC 9457 has it. It names no URL and repeats
// nothing of the request.
type problem struct {
	Type     string   `json:"type,omitempty"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Policy   string   `json:"policy,omitempty"`
	Violated []string `json:"violated-policies,omitempty"` // of quotaExceeded

	reason     reason
	limit      throttle.Limit // of Policy; zero: the answer does not say
	retryAfter time.Duration  // 0: the answer does not say
	timing     string         // "": the request was not held
}

func newProblem(status int, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail, reason: reasons[status]}
}

// because sets the reason of an answer whose status has several.
func (p *problem) because(r reason) *problem {
	p.reason = r
	return p
}

// after sets when the caller may try again.
func (p *problem) after(d time.Duration) *problem {
	p.retryAfter = d
	return p
}

// Error implements error: a problem is the cause with which the context of a request is ended.
func (p *problem) Error() string { return p.Detail }

// write sends the answer.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Via", via)
	h.Set("Server-Timing", "throttle;dur=0")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.retryAfter), 10))
	}
	if p.limit != (throttle.Limit{}) {
		addLimit(h, p.Policy, p.limit, p.retryAfter)
	}
	if p.timing != "" {
		h.Set("Server-Timing", p.timing)
	}
	if p.Status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="throttle"`)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a caller that has gone needs no answer
}

// problemOf returns what an error means to the caller.
func problemOf(err error) *problem {
	var full *throttle.LimitError
	var away *throttle.StoreError
	var mistake *throttle.ConfigError
	switch {
	case errors.As(err, &full):
		p := newProblem(http.StatusTooManyRequests, full.Error())
		p.Type, p.Policy, p.Violated, p.limit = quotaExceeded, full.Policy, []string{full.Policy}, full.Limit
		if full.RetryAfter != throttle.Never {
			p.retryAfter = full.RetryAfter
		}
		return p
	case errors.As(err, &away):
		return newProblem(http.StatusServiceUnavailable, "it is unknown whether there is room: the store of the budgets does not answer").because(storeAway).after(time.Second)
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
		return newProblem(http.StatusForbidden, "the host is at an address that is not public, and is not listed as private").because(hostInside)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return newProblem(http.StatusGatewayTimeout, "there was no answer in time")
	case errors.As(err, &name):
		return newProblem(http.StatusBadGateway, "the name of the upstream has no address")
	case errors.As(err, &certificate):
		return newProblem(http.StatusBadGateway, "the certificate of the upstream is not trusted")
	}
	return newProblem(http.StatusBadGateway, "the upstream could not be reached")
}
