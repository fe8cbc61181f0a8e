package proxy

import (
	"bufio"
	"net"
	"net/http"
	"strings"
)

// An informational passes on the answers before the answer, such as 103 Early Hints. It removes
// from them what is for one connection alone, which [net/http/httputil.ReverseProxy] leaves there
// (golang/go#81319).
type informational struct {
	http.ResponseWriter
	modern bool // the caller speaks HTTP/1.1 or later: HTTP/1.0 has no such answers
	finish func(http.Header)
	taking *stall // bounds each wait for the caller
}

// WriteHeader implements [http.ResponseWriter].
func (w *informational) WriteHeader(status int) {
	if status >= 100 && status < 200 {
		if !w.modern || status == http.StatusSwitchingProtocols { // which only HTTP/2 has before an answer; an upgrade is written elsewhere
			return
		}
		removeHopHeaders(w.Header())
		w.finish(w.Header())
	}

	if _, typed := w.Header()["Content-Type"]; !typed {
		w.Header()["Content-Type"] = nil // net/http would guess one
	}

	w.taking.begin()
	defer w.taking.end(0)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *informational) Write(p []byte) (n int, err error) {
	w.taking.begin()
	defer func() { w.taking.end(n) }()
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *informational) FlushError() error {
	w.taking.begin()
	defer w.taking.end(0)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for [http.ResponseController]. What is written to the connection is bounded as an answer is.
func (w *informational) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.taking != nil {
		conn = &boundedWriter{conn, w.taking.within}
	}
	return conn, buffered, err
}

// Unwrap is for [http.ResponseController].
func (w *informational) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// removeHopHeaders removes the fields of one connection.
func removeHopHeaders(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for name := range h {
		switch name {
		case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			delete(h, name)
		}
	}
	removeProxyHeaders(h)
}

// removeProxyHeaders removes the fields that callers and proxies have between them, such as
// Proxy-Authorization.
func removeProxyHeaders(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Proxy-") {
			delete(h, name)
		}
	}
}
