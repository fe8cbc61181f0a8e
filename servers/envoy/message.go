package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/fleetthrottle/throttle"
)

// fits returns the refusal of a filter whose configuration keeps the server from holding requests, or nil.
func (s *Server) fits(first *extprocv3.ProcessingRequest) *refusal {
	var detail string
	switch mode := first.GetProtocolConfig(); {
	case first.GetObservabilityMode():
		detail = "the filter only shows requests, so nothing holds them: set observability_mode to false"
	case mode.GetRequestBodyMode() != filterv3.ProcessingMode_NONE && mode.GetRequestBodyMode() != filterv3.ProcessingMode_BUFFERED:
		detail = "the filter sends bodies of requests in pieces: set request_body_mode to NONE or BUFFERED"
	case mode.GetResponseBodyMode() > filterv3.ProcessingMode_BUFFERED_PARTIAL:
		detail = "the filter wants bodies of answers back: set response_body_mode to NONE or STREAMED"
	default:
		return nil
	}

	s.tellUnfit(detail)
	return outOfOrder(detail)
}

// fields reads the header fields of a message. Fields whose name begins with a colon are in pseudo, under their names.
// again is the name of a pseudo field that the message has twice, or "".
func fields(all *corev3.HeaderMap) (header http.Header, pseudo map[string]string, again string) {
	header, pseudo = make(http.Header, len(all.GetHeaders())), make(map[string]string, 4)
	for _, f := range all.GetHeaders() {
		// Envoy sends raw values since 1.27, and plain values before.
		name, value := f.GetKey(), cmp.Or(string(f.GetRawValue()), f.GetValue())
		if !strings.HasPrefix(name, ":") {
			header.Add(name, value)
			continue
		}
		if _, twice := pseudo[name]; twice {
			again = name
		}
		pseudo[name] = value
	}

	return header, pseudo, again
}

// requestOf returns the request that policies match, without its body.
func requestOf(ctx context.Context, head *extprocv3.HttpHeaders) (*http.Request, *refusal) {
	header, pseudo, again := fields(head.GetHeaders())
	method, host, path := pseudo[":method"], cmp.Or(pseudo[":authority"], header.Get("Host")), pseudo[":path"]
	switch {
	case again != "":
		return nil, illegible("the request has " + again + " twice")
	case method == "":
		return nil, illegible("the request has no :method")
	case host == "":
		return nil, illegible("the request has no :authority")
	case method != http.MethodConnect && !strings.HasPrefix(path, "/") && path != "*":
		return nil, illegible("the :path of the request is not a path")
	}

	target := new(url.URL)
	if path != "" {
		var err error

		// A path that policies could not match would pass them by.
		if target, err = url.ParseRequestURI(path); err != nil {
			return nil, illegible("the :path of the request is not a path")
		}
	}

	target.Scheme, target.Host = cmp.Or(pseudo[":scheme"], "https"), host

	req := &http.Request{Method: method, URL: target, Host: host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: lengthOf(header)}
	if head.GetEndOfStream() {
		req.ContentLength = 0
	}

	return req.WithContext(ctx), nil
}

// lengthOf returns the Content-Length of a message, or -1 without one.
func lengthOf(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// addBody adds a whole body to a request.
func addBody(req *http.Request, body []byte) {
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
}

// responseOf returns the answer that policies see, without its body.
func responseOf(req *http.Request, head *extprocv3.HttpHeaders) (*http.Response, error) {
	header, pseudo, _ := fields(head.GetHeaders())
	code, err := strconv.Atoi(pseudo[":status"])
	if err != nil || code < 100 || code > 999 {
		return nil, errors.New("the answer has no status")
	}

	return &http.Response{
		StatusCode: code, Status: pseudo[":status"] + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: lengthOf(header), Request: req,
	}, nil
}

// maxWaitOf returns how long the caller of a request wants to be held at most, as "Prefer: wait=5" says in seconds
// (RFC 7240), but no longer than most.
func maxWaitOf(h http.Header, most time.Duration) time.Duration {
	seconds, err := strconv.ParseUint(parameter(h["Prefer"], "wait"), 10, 31)
	switch wanted := time.Duration(seconds) * time.Second; {
	case err != nil || wanted >= most:
		return most
	case wanted == 0:
		return throttle.NoWait
	default:
		return wanted
	}
}

// priorityOf returns the priority that "Priority: u=1" names (RFC 9218): 0 is the most urgent, and 3 is normal.
func priorityOf(h http.Header) throttle.Priority {
	switch parameter(h["Priority"], "u") {
	case "0", "1", "2":
		return throttle.PriorityHigh
	case "4", "5", "6", "7":
		return throttle.PriorityLow
	}
	return throttle.PriorityNormal
}

// parameter returns the value of the first "name=value" in lists that commas separate, or "". Text behind a semicolon
// belongs to the element before it.
func parameter(lists []string, name string) string {
	for _, list := range lists {
		for element := range strings.SplitSeq(list, ",") {
			element, _, _ = strings.Cut(element, ";")
			key, value, ok := strings.Cut(element, "=")
			if ok && strings.EqualFold(strings.TrimSpace(key), name) {
				return strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return ""
}
