package proxyclients

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"
)

// An upstream plays the API of a model: paths are /CLIENT/STORY/v1/chat/completions, or
// /CLIENT/STORY/v1/messages. It counts the windows of the story "held", and bans whoever sends one
// request too many.
type upstream struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	arrived map[string][]time.Time // by place
	banned  map[string]bool
	codings map[string]string // the last Accept-Encoding

	gates sync.Map // by place: chan gate, for the stories that a test leads
}

// A gate is where a request waits in the upstream for the test.
type gate struct {
	pass chan struct{}   // is closed by the test
	gone <-chan struct{} // is closed when the caller has left
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, arrived: make(map[string][]time.Time), banned: make(map[string]bool), codings: make(map[string]string)}
	u.Server = httptest.NewUnstartedServer(u)
	u.EnableHTTP2 = true
	u.StartTLS()
	t.Cleanup(u.Close)
	return u
}

// host is where the upstream listens.
func (u *upstream) host() string { return u.Listener.Addr().String() }

// count returns how many requests have arrived at a place.
func (u *upstream) count(p place) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.arrived[p.path()])
}

// coding returns which compression the last request to a place asked for.
func (u *upstream) coding(p place) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.codings[p.path()]
}

// gate returns where the requests to a place tell that they wait.
func (u *upstream) gate(p place) chan gate {
	gates, _ := u.gates.LoadOrStore(p.path(), make(chan gate))
	return gates.(chan gate)
}

// The rule of the story "held", which the policy file has as "2/s".
const (
	heldMost = 2
	heldPer  = time.Second
)

// arrive notes a request that came at a time, and returns whether its caller is banned.
func (u *upstream) arrive(now time.Time, path string, r *http.Request) (banned bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := append(u.arrived[path], now)
	u.arrived[path] = all
	u.codings[path] = r.Header.Get("Accept-Encoding")
	if strings.HasSuffix(path, "/held") && len(all) > heldMost && now.Sub(all[len(all)-1-heldMost]) < heldPer {
		u.banned[path] = true
	}
	return u.banned[path]
}

// ServeHTTP implements [http.Handler].
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	var question struct{ Stream bool }
	if len(parts) > 1 && parts[1] == "signed" && !isSigned(r) {
		http.Error(w, `{"message":"the signature does not match"}`, http.StatusForbidden)
		return
	}
	if len(parts) != 4 || parts[2] != "v1" || json.NewDecoder(r.Body).Decode(&question) != nil {
		http.Error(w, `{"error":{"message":"this is no call of a model"}}`, http.StatusBadRequest)
		return
	}
	place, call := parts[0]+"/"+parts[1], parts[3]
	if u.arrive(now, place, r) {
		answer(w, r, http.StatusTooManyRequests, `{"error":{"message":"banned, because of one request too many"}}`)
		return
	}
	switch parts[1] {
	case "led", "stopped", "streamed":
		if question.Stream {
			u.stream(w, r, place, call)
			return
		}
		u.await(place, r)
	case "banned":
		w.Header().Set("Retry-After", "3600")
		answer(w, r, http.StatusTooManyRequests, `{"error":{"type":"rate_limit","message":"slow down"}}`)
		return
	case "coded":
		answer(w, r, http.StatusOK, `{"errcode":90018,"errmsg":"too many requests"}`)
		return
	}
	answer(w, r, http.StatusOK, completion(call))
}

// await holds a request until the test lets it pass, or its caller has left.
func (u *upstream) await(path string, r *http.Request) {
	g := gate{make(chan struct{}), r.Context().Done()}
	gates, _ := u.gates.LoadOrStore(path, make(chan gate))
	select {
	case gates.(chan gate) <- g:
	case <-u.t.Context().Done():
		return
	}
	select {
	case <-g.pass:
	case <-g.gone:
	case <-u.t.Context().Done():
	}
}

// stream sends a text in two events. The test lets the second pass.
func (u *upstream) stream(w http.ResponseWriter, r *http.Request, place, call string) {
	w.Header().Set("Content-Type", "text/event-stream")
	events := chatEvents
	if call == "messages" {
		events = messageEvents
	}
	fmt.Fprint(w, events[0])
	_ = http.NewResponseController(w).Flush()
	u.await(place, r)
	fmt.Fprint(w, events[1])
}

// answer sends JSON, compressed if the caller understands that.
func answer(w http.ResponseWriter, r *http.Request, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	defer z.Close()
	_, _ = io.WriteString(z, text)
}

// completion returns the answer of a model.
func completion(call string) string {
	if call == "messages" {
		return `{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hello"}],` +
			`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
	}
	return `{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello"}}]}`
}

var chatEvents = [2]string{
	`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"first"}}]}` + "\n\n",
	`data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"last"}}]}` + "\n\ndata: [DONE]\n\n",
}

var messageEvents = [2]string{
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"first"}}` + "\n\n",
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"last"}}` + "\n\n" +
		"event: message_stop\n" + `data: {"type":"message_stop"}` + "\n\n",
}

// A tap passes bytes on between a client and a proxy, and counts requests.
type tap struct {
	net.Listener
	to string

	mu   sync.Mutex
	seen bytes.Buffer // what clients have sent
}

// newTap starts a tap before the proxy at an address. It accepts connections until t ends.
func newTap(t *testing.T, to string) *tap {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{Listener: listener, to: to}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.relay(conn)
		}
	}()
	return p
}

// relay carries one connection, and keeps the bytes that its client sends.
func (p *tap) relay(client net.Conn) {
	defer client.Close()
	proxy, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	go func() {
		defer proxy.Close()
		_, _ = io.Copy(io.MultiWriter(proxy, p), client)
	}()
	_, _ = io.Copy(client, proxy)
}

// Write implements [io.Writer].
func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

// requests returns how many requests have come.
func (p *tap) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Count(p.seen.Bytes(), []byte(" HTTP/1.1\r\n"))
}

// secretKey signs the calls of the story "signed".
const secretKey = "a-secret-key"

// isSigned reports whether a request has the signature that AWS would demand: of its method, its
// path, its host, its body, and of the headers that the signature names.
func isSigned(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	_, names, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	again, err := http.NewRequest(r.Method, "https://"+r.Host+r.RequestURI, nil)
	if err != nil {
		return false
	}
	for name := range strings.SplitSeq(names, ";") {
		if values := r.Header.Values(name); len(values) > 0 {
			again.Header[http.CanonicalHeaderKey(name)] = values
		}
		if name == "content-length" {
			again.ContentLength = r.ContentLength
		}
	}
	hash := sha256.Sum256(body)
	credentials := aws.Credentials{AccessKeyID: "id", SecretAccessKey: secretKey}
	if v4.NewSigner().SignHTTP(r.Context(), credentials, again, hex.EncodeToString(hash[:]), "execute-api", "eu-central-1", at) != nil {
		return false
	}
	return signature(again) != "" && signature(again) == signature(r)
}

// signature returns what stands last in Authorization.
func signature(r *http.Request) string {
	_, s, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
	return s
}

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
