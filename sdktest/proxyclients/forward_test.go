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
}

// ways go to an address and its port. curl reads no HTTP_PROXY in capitals, Guzzle reads it on
// the command line alone, and Java goes round proxies to the loopback unless told otherwise.
func ways(address string) []way {
	host, port, _ := net.SplitHostPort(address)
	variable, java := "HTTP_PROXY=http://"+address, "JDK_JAVA_OPTIONS=-Dhttp.proxyHost="+host+" -Dhttp.proxyPort="+port+" -Dhttp.nonProxyHosts="
	return []way{
		{"requests", "requests", []string{variable}},
		{"httpx", "httpx", []string{variable}},
		{"curl", "curl", []string{"http_proxy=http://" + address}},
		{"guzzle", "guzzle", []string{variable}},
		{"axios", "axios", []string{variable}},
		{"undici", "fetch", []string{variable, "NODE_OPTIONS=--import ./node/proxyagent.mjs"}},
		{"fetch", "fetch", []string{variable, "NODE_USE_ENV_PROXY=1"}}, // asks for a tunnel, for http too
		{"java", "java", []string{java}},
		{"okhttp", "okhttp", []string{java}},
	}
}

// forwarded: clients that are told of a proxy, and call the API as if by http, are held to the
// same limits. The proxy calls the API by https.
func (s *scene) forwarded(t *testing.T) {
	for _, w := range ways(s.proxies[0]) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			c := clients[slices.IndexFunc(clients, func(c *client) bool { return c.name == w.client })]
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
