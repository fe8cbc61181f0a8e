package proxy

import (
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
)

// copyBuffer is how much of an answer is copied at a time.
const copyBuffer = 32 << 10

// buffers are those of answers that are over. They implement [httputil.BufferPool].
type buffers struct{ pool sync.Pool }

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if free, ok := b.pool.Get().(*[copyBuffer]byte); ok {
		return free[:]
	}
	return make([]byte, copyBuffer)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(free []byte) { b.pool.Put((*[copyBuffer]byte)(free)) }

// rewrite makes of the caller's request the one that is sent.
func rewrite(pr *httputil.ProxyRequest) {
	to := callOf(pr.In.Context()).to
	target := *to.target
	pr.Out.URL, pr.Out.Host = &target, to.field
	pr.Out.Trailer = pr.In.Trailer // the server fills it in when the body has ended
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
