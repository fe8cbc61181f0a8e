package proxy

import (
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
	w.ResponseWriter.WriteHeader(status)
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
