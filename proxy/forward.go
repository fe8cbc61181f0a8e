package proxy

import (
	"net/http"
	"net/http/httputil"
	"strings"
)

// rewrite makes of the caller's request the one that is sent.
func rewrite(pr *httputil.ProxyRequest) {
	to := callOf(pr.In.Context()).to
	target := *to.target
	pr.Out.URL, pr.Out.Host = &target, to.field
	removeProxyHeaders(pr.Out.Header)
	pr.Out.Header.Add("Via", via)
	if !strings.EqualFold(pr.Out.Header.Get("Upgrade"), "websocket") { // under h2c no policy would see a request
		pr.Out.Header.Del("Upgrade")
		pr.Out.Header.Del("Connection")
	}
}

// isReadable reports whether policies can read an answer with these headers, as far as its coding
// goes.
func isReadable(h http.Header) bool {
	for _, list := range h["Content-Encoding"] {
		for coding := range strings.SplitSeq(list, ",") {
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "", "identity", "gzip", "x-gzip", "deflate":
			default:
				return false
			}
		}
	}
	return true
}
