package throttle_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"
)

// A fuzzBase is a base that keeps to the contract of http.RoundTripper where that
// says something, and to nothing else.
type fuzzBase struct{ script *fuzzScript }

func (b *fuzzBase) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	s := b.script
	if s.next(2) == 1 && !b.connect(r) {
		return nil, errFuzzBase
	}
	select {
	case <-time.After(s.moment()):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	switch s.next(12) {
	case 1:
		return nil, errFuzzBase
	case 2:
		return nil, nil
	case 3:
		panic(errFuzzPanic)
	case 4:
		return b.answer(r), errFuzzBase
	}
	return b.answer(r), nil
}

// connect tells of connections, more than one if the first is lost, and reports
// whether the request was written.
func (b *fuzzBase) connect(r *http.Request) bool {
	trace := httptrace.ContextClientTrace(r.Context())
	for range 1 + b.script.next(3) {
		time.Sleep(b.script.moment())
		if trace != nil && trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{})
		}
		if r.Context().Err() != nil || r.URL != nil && r.URL.Opaque == "\x7f" {
			return false
		}
		if trace != nil && trace.WroteHeaders != nil {
			trace.WroteHeaders()
		}
	}
	return true
}

// answer returns an answer of any status, with any body.
func (b *fuzzBase) answer(r *http.Request) *http.Response {
	s := b.script
	resp := &http.Response{Request: r, StatusCode: []int{200, 429, 503, 101, 0, -1, 999, 204}[s.next(8)]}
	if s.next(4) > 0 {
		resp.Header = http.Header{"Retry-After": {s.field}, "Date": {s.field}, "Content-Encoding": {[]string{"", "gzip"}[s.next(2)]}}
	}
	ctx, end := context.WithCancel(r.Context())
	body := &fuzzAnswer{s, ctx, end}
	switch s.next(5) {
	case 0:
		resp.Body = http.NoBody
	case 1:
		resp.Body = nil
	case 2:
		resp.Body = struct {
			io.ReadCloser
			io.Writer
		}{body, io.Discard}
	default:
		resp.Body = body
	}
	return resp
}
