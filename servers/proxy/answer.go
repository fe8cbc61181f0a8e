package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	problems "github.com/fleetthrottle/throttle/internal/problem"
)

// via is how the proxy names itself in the header Via.
const via = problems.Via

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

// A problem is an answer of the proxy itself.
type problem struct {
	problems.Problem
	reason reason
	timing string // "": the request was not held
}

func newProblem(status int, detail string) *problem {
	return &problem{Problem: *problems.New(status, detail), reason: reasons[status]}
}

// because sets the reason of an answer whose status has several.
func (p *problem) because(r reason) *problem {
	p.reason = r
	return p
}

// after sets when the caller may try again.
func (p *problem) after(d time.Duration) *problem {
	p.RetryAfter = d
	return p
}

// Error implements error: a problem is the cause with which the context of a request is ended.
func (p *problem) Error() string { return p.Detail }

// write sends the answer.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Server-Timing", cmp.Or(p.timing, "throttle;dur=0"))
	if p.Status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="throttle"`)
	}
	p.Write(w)
}

// problemOf returns what an error means to the caller.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p // it has ended the wait
	}
	known := problems.Of(err)
	if known == nil {
		return unreached(err)
	}
	p := &problem{Problem: *known, reason: reasons[known.Status]}
	if known.Status == http.StatusServiceUnavailable {
		p.reason = storeAway
	}
	return p
}

// unreached returns the answer of a request that an upstream has not answered.
func unreached(err error) *problem {
	var timeout net.Error
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError

	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, errInside):
		return newProblem(http.StatusForbidden, "the host is at an address that is not public, and is not listed as private (--private HOST)").because(hostInside)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return newProblem(http.StatusGatewayTimeout, "there was no answer in time")
	case errors.As(err, &name):
		return newProblem(http.StatusBadGateway, "the name of the upstream has no address")
	case errors.As(err, &certificate):
		return newProblem(http.StatusBadGateway, "the certificate of the upstream is not trusted")
	case errors.As(err, &record):
		return newProblem(http.StatusBadGateway, "the upstream does not speak TLS, and is called by https alone")
	}

	return newProblem(http.StatusBadGateway, "the upstream could not be reached")
}
