package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// outsiders notes links that lead round the proxy.
type outsiders struct {
	mu    sync.Mutex
	hosts []string
}

func (o *outsiders) add(host string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hosts = append(o.hosts, host)
}

func (o *outsiders) take() (hosts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hosts, o.hosts = o.hosts, nil
	return hosts
}

// TestLinks: a link to a host of the policies leads back to the proxy, by the way on which the
// request has come. What follows the host stays byte for byte.
func TestLinks(t *testing.T) {
	links := make(chan string, 1)
	var outside outsiders
	upstream := func(w http.ResponseWriter, _ *http.Request) {
		link := <-links
		w.Header()["Location"] = []string{link}
		w.Header()["Content-Location"] = []string{link}
		w.Header()["Link"] = []string{"<" + link + ">; rel=\"next\""}
		w.WriteHeader(302)
	}
	s := newNamedScene(t, false, upstream, func(c *proxy.Config) { c.OutsideLink = outside.add }, rows...)
	direct := s.address
	upstreamAddress := s.listen(s.handler.Upstream("api.example.com"))
	ways := []struct{ address, target, host string }{
		{direct, "/api.example.com", "localhost:7070"},
		{direct, "", "api.example.com"},
		{upstreamAddress, "", "localhost:7071"},
		{direct, "http://api.example.com", "x"},
	}
	for _, c := range []struct {
		link string
		want [4]string // of each way
	}{
		{"https://api.example.com/v1/x?page=2&sig=%2f%2F;a#b", [4]string{"http://localhost:7070/api.example.com/v1/x?page=2&sig=%2f%2F;a#b", "http://api.example.com/v1/x?page=2&sig=%2f%2F;a#b", "http://localhost:7071/v1/x?page=2&sig=%2f%2F;a#b", "http://api.example.com/v1/x?page=2&sig=%2f%2F;a#b"}},
		{"http://api.example.com//a/../b", [4]string{"http://localhost:7070/api.example.com//a/../b", "http://api.example.com//a/../b", "http://localhost:7071//a/../b", "http://api.example.com//a/../b"}},
		{"HTTPS://Api.Example.com.:443", [4]string{"http://localhost:7070/api.example.com", "http://api.example.com", "http://localhost:7071", "http://api.example.com"}},
		{"//api.example.com?q", [4]string{"http://localhost:7070/api.example.com?q", "http://api.example.com?q", "http://localhost:7071?q", "http://api.example.com?q"}},
		{"https://odd.example.com:8443/x", [4]string{"http://127.0.0.1:7070/-/odd.example.com:8443/x"}},
		{"https://a.wide.example.com/x", [4]string{"http://127.0.0.1:7070/-/a.wide.example.com/x"}},
		{"https://a.wide.example.com/../x?..#/..", [4]string{"http://127.0.0.1:7070/-/a.wide.example.com/x?..#/.."}},
		{"https://else.example.com/x", [4]string{}},
		{"https://else.example.com/a\\b", [4]string{}},
		{"https://odd.example.com/x", [4]string{}},
		{"https://u:p@api.example.com/x", [4]string{}},
		{"https://api.example.com:22/x", [4]string{}},
		{"/v1/x?page=2", [4]string{"/api.example.com/v1/x?page=2", "/v1/x?page=2", "/v1/x?page=2", "/v1/x?page=2"}},
		{"x?u=https://api.example.com/", [4]string{"x?u=https://api.example.com/", "x?u=https://api.example.com/", "x?u=https://api.example.com/", "x?u=https://api.example.com/"}},
		{"/../odd.example.com:8443/x", [4]string{"/api.example.com/odd.example.com:8443/x", "/../odd.example.com:8443/x", "/../odd.example.com:8443/x", "/../odd.example.com:8443/x"}},
		{"/a/%2E%2e/.%2E/b", [4]string{"/api.example.com/b", "/a/%2E%2e/.%2E/b", "/a/%2E%2e/.%2E/b", "/a/%2E%2e/.%2E/b"}},
		{"../../odd.example.com:8443/x", [4]string{"/api.example.com/odd.example.com:8443/x", "../../odd.example.com:8443/x", "../../odd.example.com:8443/x", "../../odd.example.com:8443/x"}},
		{"..\\..\\b?\\", [4]string{"/api.example.com/b?\\", "../../b?\\", "../../b?\\", "../../b?\\"}},
		{"../x", [4]string{"../x", "../x", "../x", "../x"}},
		{"https://api.example.com/v1/../../../x", [4]string{"http://localhost:7070/api.example.com/x", "http://api.example.com/v1/../../../x", "http://localhost:7071/v1/../../../x", "http://api.example.com/v1/../../../x"}},
		{"?page=2", [4]string{"?page=2", "?page=2", "?page=2", "?page=2"}},
		{"mailto:a@api.example.com", [4]string{"mailto:a@api.example.com", "mailto:a@api.example.com", "mailto:a@api.example.com", "mailto:a@api.example.com"}},
		{"wss://api.example.com/x", [4]string{"wss://api.example.com/x", "wss://api.example.com/x", "wss://api.example.com/x", "wss://api.example.com/x"}},
	} {
		for i, way := range ways {
			links <- c.link
			s.address = way.address
			resp, body := s.ask("GET", way.target+"/v1/ HTTP/1.1\nHost: "+way.host+"\n\n")
			require.Equal(t, 302, resp.StatusCode, body)
			want, told := c.want[i], []string(nil)
			if want == "" {
				u, err := url.Parse(c.link)
				require.NoError(t, err)
				want, told = c.link, []string{u.Host, u.Host, u.Host}
			}
			require.Equal(t, want, resp.Header.Get("Location"), "way %d", i)
			require.Equal(t, want, resp.Header.Get("Content-Location"))
			require.Equal(t, "<"+want+">; rel=\"next\"", resp.Header.Get("Link"))
			require.Equal(t, told, outside.take())
		}
	}
}

// TestLinks_BehindAnEmptyPath: a base URL without a slash at its end has the path / at the upstream, and so do relative links.
func TestLinks_BehindAnEmptyPath(t *testing.T) {
	links := make(chan string, 1)
	s := newNamedScene(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Location"] = []string{<-links}
		w.WriteHeader(302)
	}, nil, rows...)
	for link, want := range map[string]string{
		"v1/x?a#b": "/api.example.com/v1/x?a#b", "./x": "/api.example.com/./x", "../x": "/api.example.com/x",
		"?page=2": "?page=2", "#a": "#a", "/v1": "/api.example.com/v1", "mailto:a@api.example.com": "mailto:a@api.example.com",
	} {
		for _, target := range []string{"/api.example.com", "/api.example.com?q"} {
			links <- link
			resp, body := s.ask("GET", target+" HTTP/1.1\nHost: localhost\n\n")
			require.Equal(t, 302, resp.StatusCode, body)
			require.Equal(t, want, resp.Header.Get("Location"), link)

			// A client resolves the link to the same path as a client of the upstream, below the root.
			at := func(base string) string {
				u, err := url.Parse(base)
				require.NoError(t, err)
				to, err := u.Parse(resp.Header.Get("Location"))
				require.NoError(t, err)
				return to.Path
			}
			if link[0] != 'm' {
				require.True(t, strings.HasPrefix(at("http://localhost"+target), "/api.example.com"), link)
			}
		}
	}
}

// TestLinkField: of a field Link only what stands in angle brackets is a link.
func TestLinkField(t *testing.T) {
	const in = `<https://api.example.com/2>; rel="next"; title="<https://api.example.com/\">"; anchor="https://api.example.com/", </v1>;rel=up,<https://else.example.com/>, "<https://api.example.com/>`
	const out = `<http://localhost/api.example.com/2>; rel="next"; title="<https://api.example.com/\">"; anchor="https://api.example.com/", </api.example.com/v1>;rel=up,<https://else.example.com/>, "<https://api.example.com/>`
	lists := []string{in, "<https://api.example.com/", "", "<>", `\`, `"\`}
	s := newNamedScene(t, false, func(w http.ResponseWriter, _ *http.Request) { w.Header()["Link"] = lists }, nil, rows...)
	resp, _ := s.ask("GET", "/api.example.com/v1/ HTTP/1.1\nHost: localhost\n\n")
	require.Equal(t, append([]string{out}, lists[1:]...), resp.Header["Link"])
}

// TestPagination: a client that follows Link and Location gets all pages by the proxy.
func TestPagination(t *testing.T) {
	upstream := func(w http.ResponseWriter, r *http.Request) {
		switch page := r.URL.Query().Get("page"); page {
		case "":
			http.Redirect(w, r, "https://api.example.com/v1/list?page=1", http.StatusMovedPermanently)
		case "1", "2":
			w.Header().Set("Link", fmt.Sprintf(`<https://api.example.com/v1/list?page=%s>; rel="next"`, string(page[0]+1)))
			fallthrough
		default:
			fmt.Fprint(w, "page "+page)
		}
	}
	s := newNamedScene(t, true, upstream, nil, at("api.example.com/v1/", 100))
	proxied, err := url.Parse("http://" + s.address)
	require.NoError(t, err)
	one := s.listen(s.handler.Upstream("api.example.com"))
	for begin, c := range map[string]*http.Client{
		"http://" + s.address + "/api.example.com/v1/list": {},
		"http://" + one + "/v1/list":                       {},
		"http://api.example.com/v1/list":                   {Transport: &http.Transport{Proxy: http.ProxyURL(proxied), DisableKeepAlives: true}},
	} {
		var pages []string
		for next := begin; next != ""; {
			resp, err := c.Get(next)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			pages = append(pages, string(text))
			next, _, _ = strings.Cut(strings.TrimPrefix(resp.Header.Get("Link"), "<"), ">")
		}
		require.Equal(t, []string{"page 1", "page 2", "page 3"}, pages, begin)
	}
}

// TestFormOfRefusal: a call of a language model is refused in the form that its SDK reads, beside the members of a problem.
func TestFormOfRefusal(t *testing.T) {
	openAI := func(kind string) map[string]any {
		return map[string]any{"message": "DETAIL", "type": kind, "param": nil, "code": "rate_limit_exceeded", "policy": "POLICY"}
	}
	anthropic := func() map[string]any { return map[string]any{"type": "rate_limit_error", "message": "DETAIL"} }
	gemini := map[string]any{"code": 429.0, "message": "DETAIL", "status": "RESOURCE_EXHAUSTED"}
	const quota = "https://iana.org/assignments/http-problem-types#quota-exceeded"

	for _, c := range []struct {
		policy, path, header string
		kind                 any
		want                 map[string]any
	}{
		{"api", "/v1/chat/completions", "", quota, openAI("requests")},
		{"openai-tokens", "/openai/deployments/x/chat/completions?api-version=1", "", quota, openAI("tokens")},
		{"api", "/v1/responses", "", quota, openAI("requests")},
		{"api", "/v1/messages", "", "error", anthropic()},
		{"api", "/v1/messages/batches", "Anthropic-Version: 2023-06-01", "error", anthropic()},
		{"api", "/v1beta/models/m:streamGenerateContent?alt=sse", "", quota, gemini},
		{"api", "/v1/orders", "", quota, nil},
		{"api", "/v1/chat/completions/x", "", quota, nil},
	} {
		t.Run(c.path, func(t *testing.T) {
			s := newScene(t, func(http.ResponseWriter, *http.Request) {}, nil, throttle.Policy{Name: c.policy, Limit: throttle.SlidingWindow(1, time.Hour)})
			path := "/" + s.upstream + c.path
			var headers []string
			if c.header != "" {
				headers = []string{c.header}
			}
			resp, _ := s.get(path, headers...)
			require.Equal(t, http.StatusOK, resp.StatusCode)

			resp, body := s.get(path, headers...)
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Equal(t, "1.1 throttle", resp.Header.Get("Via"))
			var p map[string]any
			require.NoError(t, json.Unmarshal([]byte(body), &p))
			require.Equal(t, c.kind, p["type"])
			require.Equal(t, c.policy, p["policy"])
			require.Contains(t, p["detail"], "MaxWait is 5s")

			for name, v := range c.want {
				switch v {
				case "DETAIL":
					c.want[name] = p["detail"]
				case "POLICY":
					c.want[name] = c.policy
				}
			}
			if c.want == nil {
				require.NotContains(t, p, "error")
				require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
				return
			}
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			require.Equal(t, c.want, p["error"])
		})
	}
}

// TestP5_TenantsOfTheProxyTakeTurns: the request of one tenant does not wait for the crowd of another.
func TestP5_TenantsOfTheProxyTakeTurns(t *testing.T) {
	var arrived atomic.Int64
	full := make(chan struct{})
	s := newScene(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") == "crowd" && arrived.Add(1) == 10 {
			close(full)
		}
	}, nil, throttle.Policy{Name: "api", Limit: throttle.SlidingWindow(10, time.Second), Share: throttle.Header("X-Tenant")})
	go func() {
		for range s.events { // nobody looks at them
		}
	}()
	ask := func(ctx context.Context, tenant string) error {
		resp, err := s.do(ctx, "GET", "/"+s.upstream+"/", nil, "X-Tenant: "+tenant)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	ctx, over := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	for range 60 {
		crowd.Go(func() { _ = ask(ctx, "crowd") })
	}
	<-full
	require.NoError(t, ask(t.Context(), "other"))
	require.Less(t, arrived.Load(), int64(40), "it waited for the crowd")
	over()
	crowd.Wait()
}
