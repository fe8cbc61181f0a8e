package proxyclients

import (
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A way is how a client is told of a forward proxy, as its users type it.
type way struct {
	name, client string
	variables    []string
	refused      string // what it calls a tunnel that is refused
}

// ways go to an address. curl reads no HTTP_PROXY in capitals, Guzzle reads it on the command line
// alone, and Java goes round proxies to the loopback unless told otherwise.
func ways(address string) []way {
	host, port, _ := net.SplitHostPort(address)
	plain, secure := "HTTP_PROXY=http://"+address, "HTTPS_PROXY=http://"+address
	java := "JDK_JAVA_OPTIONS=-Dhttp.nonProxyHosts="
	for _, scheme := range []string{"http", "https"} {
		java += " -D" + scheme + ".proxyHost=" + host + " -D" + scheme + ".proxyPort=" + port
	}
	return []way{
		{"requests", "requests", []string{plain, secure}, "SSLError"},
		{"httpx", "httpx", []string{plain, secure}, "ConnectError"},
		{"aiohttp", "aiohttp", []string{plain, secure}, "ClientConnectorSSLError"},
		{"curl", "curl", []string{"http_proxy=http://" + address, secure}, "35"},
		{"guzzle", "guzzle", []string{plain, secure}, "ConnectException"},
		{"axios", "axios", []string{plain, secure}, "EPROTO"},
		{"undici", "fetch", []string{plain, "NODE_OPTIONS=--import ./node/proxyagent.mjs"}, "TypeError"},
		{"fetch", "fetch", []string{plain, secure, "NODE_USE_ENV_PROXY=1"}, "TypeError"}, // asks for a tunnel, for http too
		{"java", "java", []string{java}, "SSLHandshakeException"},
		{"okhttp", "okhttp", []string{java}, "SSLHandshakeException"},
	}
}

// of returns the client of a way.
func (w *way) of() *client {
	return clients[slices.IndexFunc(clients, func(c *client) bool { return c.name == w.client })]
}

// forwarded: clients that are told of a proxy, and call the API as if by http, are held to the
// same limits. The proxy calls the API by https.
func (s *scene) forwarded(t *testing.T) {
	for _, w := range ways(s.proxies[0]) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			c := w.of()
			p := place{w.name, "forwarded"}
			args := append(w.variables, c.variable+"=http://"+s.host()+"/"+p.path()+"/v1", "RETRIES=0", "calls", "2")
			all := s.start(t, c, s.proxies[0], p, args...).all()
			require.Len(t, all, 2)
			require.Equal(t, http.StatusOK, all[0].Status, "%+v", all[0])
			require.Contains(t, all[0].Timing, "throttle;dur=")
			s.requireRefused(t, c, all[1], "forwarded", "1/h")
			require.Equal(t, 1, s.count(p))
		})
	}
}

// tunnelled: a client that wants a tunnel for https is refused where a tunnel would hide what the
// policies look at, and shows an error of its own.
func (s *scene) tunnelled(t *testing.T) {
	for _, w := range ways(s.proxies[0]) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			c := w.of()
			p := place{w.name, "tunnelled"}
			args := append(w.variables, c.variable+"=https://"+s.host()+"/"+p.path()+"/v1", "RETRIES=0", "calls", "1")
			r := s.run(t, c, s.proxies[0], p, args...)
			require.Equal(t, w.refused, r.Error, "%+v", r)
			require.Zero(t, s.count(p))
		})
	}
}

// signed: a signature that covers the host and the path, as those of AWS do, holds behind the proxy.
func (s *scene) signed(t *testing.T) {
	for name, args := range map[string][]string{
		"curl": {"curl", "--silent", "--show-error", "--fail-with-body", "--aws-sigv4", "aws:amz:eu-central-1:execute-api", "--user", "id:" + secretKey,
			"--proxy", "http://" + s.proxies[0], "--json", `{"model":"m"}`, "http://" + s.host() + "/curl/signed/v1/chat/completions"},
		"aws4": append(s.kits.node[:1:1], "node/aws4.mjs", "http://"+s.proxies[0], "http://"+s.host()+"/aws4/signed/v1/chat/completions", secretKey),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := build(t, ".", args[0], args[1:]...)
			require.Contains(t, out, "Hello")
			require.Equal(t, 1, s.count(place{name, "signed"}))
		})
	}
}
