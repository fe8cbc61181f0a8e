package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"

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
	timing string // "": the answer does not say
}

func newProblem(status int, detail string) *problem {
	return &problem{Problem: *problems.New(status, detail)}
}

// write sends the answer.
func (p *problem) write(w http.ResponseWriter) {
	if p.timing != "" {
		w.Header().Set("Server-Timing", p.timing)
	}
	p.Write(w)
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
	if p := problems.Of(err); p != nil {
		return &problem{Problem: *p}
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
