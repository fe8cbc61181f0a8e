package throttle_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

func TestHeader(t *testing.T) {
	r := &http.Request{}
	require.Empty(t, throttle.Header("X-App")(r))
	r.Header = http.Header{"X-App": {"a", "b"}, "X-None": {}}
	require.Equal(t, "a", throttle.Header("x-app")(r))
	require.Empty(t, throttle.Header("X-None")(r))
}

func TestQuery(t *testing.T) {
	for _, c := range []struct{ query, want string }{
		{"", ""},
		{"app=1", "1"},
		{"app=1&app=2", "1"},
		{"apps=1", ""},
		{"x=app&app=2", "2"},
		{"app", ""},
		{"&&app=a+b%20c", "a b c"},
		{"%61pp=1", "1"},
		{"app=1;x=2&app=3", "3"},
		{"app=%zz&app=3", "3"},
		{"app==", "="},
	} {
		r := &http.Request{URL: &url.URL{RawQuery: c.query}}
		require.Equal(t, c.want, throttle.Query("app")(r), "%q", c.query)
	}
}

func TestQueryDoesNotReadTheBody(t *testing.T) {
	r := &http.Request{
		Method: http.MethodPost,
		URL:    &url.URL{RawQuery: "app=1"},
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   io.NopCloser(iotest.ErrReader(errors.New("read"))),
	}
	require.Equal(t, "1", throttle.Query("app")(r))
	require.Nil(t, r.Form)
}

// TestBodyMember: a member of a JSON body is a key, and the body is sent as it was. A body that is something else, or that
// can be read only once, has none and is left alone.
func TestBodyMember(t *testing.T) {
	for _, c := range []struct{ media, body, want string }{
		{"application/json", `{"model": "m", "n": 1}`, "m"},
		{"Application/JSON; charset=utf-8", `{"messages": [{"model": "x"}], "model": "m"}`, "m"},
		{"application/json", `{"model": 7}`, "7"},
		{"application/json", `{"model": {"name": "m"}}`, ""},
		{"application/json", `{"model": ["m"]}`, ""},
		{"application/json", `{"n": 1}`, ""},
		{"application/json", `[{"model": "m"}]`, ""},
		{"application/json", `no JSON`, ""},
		{"application/json", ``, ""},
		{"text/plain", `{"model": "m"}`, ""},
		{"", `{"model": "m"}`, ""},
	} {
		r := must(http.NewRequest(http.MethodPost, "https://example.com/", strings.NewReader(c.body)))
		r.Header.Set("Content-Type", c.media)
		require.Equal(t, c.want, throttle.BodyMember("model")(r), "%+v", c)
		require.Equal(t, c.body, string(must(io.ReadAll(r.Body))))
	}

	once := must(http.NewRequest(http.MethodPost, "https://example.com/", io.NopCloser(strings.NewReader(`{"model": "m"}`))))
	once.Header.Set("Content-Type", "application/json")
	require.Empty(t, throttle.BodyMember("model")(once))
	require.Equal(t, `{"model": "m"}`, string(must(io.ReadAll(once.Body))))
	require.Empty(t, throttle.BodyMember("model")(&http.Request{}))
}

func TestWildcards(t *testing.T) {
	for pattern, want := range map[string][]string{
		"": nil, "api.example.com/": nil, "{shop}.example.com/admin/{id}/{rest...}": {"shop", "id", "rest"}, "/users/{id}/{$}": {"id"},
	} {
		got, err := throttle.Policy{Match: pattern}.Wildcards()
		require.NoError(t, err)
		require.Equal(t, want, got, pattern)
	}
	_, err := throttle.Policy{Match: "{a}.{a}.example.com/"}.Wildcards()
	require.ErrorContains(t, err, "stands twice")
}

func TestPathValue(t *testing.T) {
	r := &http.Request{}
	require.Empty(t, throttle.PathValue("shop")(r))
	r.SetPathValue("shop", "tea")
	require.Equal(t, "tea", throttle.PathValue("shop")(r))
}

func TestHost(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"https://API.Example.com/", "api.example.com"},
		{"https://api.example.com./", "api.example.com"},
		{"https://api.example.com:443/", "api.example.com"},
		{"https://api.example.com.:443/", "api.example.com"},
		{"https://api.example.com:/", "api.example.com"},
		{"http://api.example.com:80/", "api.example.com"},
		{"http://api.example.com:443/", "api.example.com:443"},
		{"https://api.example.com:80/", "api.example.com:80"},
		{"https://api.example.com.:8443/", "api.example.com:8443"},
		{"https://[2001:DB8::1]:443/", "[2001:db8::1]"},
		{"https://[2001:DB8::1]/", "[2001:db8::1]"},
		{"https://[::1]:8443/", "[::1]:8443"},
		{"/relative", ""},
	} {
		u, err := url.Parse(c.url)
		require.NoError(t, err)
		require.Equal(t, c.want, throttle.Host(&http.Request{URL: u, Host: "other.example.com"}), "%s", c.url)
	}
}

func TestPath(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"", "/"}, {"/", "/"}, {"//", "/"}, {"*", "/*"},
		{"/b", "/b"}, {"/b/", "/b"}, {"b", "/b"}, {"//b", "/b"},
		{"/a/../b", "/b"}, {"/a/./b", "/a/b"}, {"/../b", "/b"}, {"..", "/"},
		{"/B", "/B"}, {"/a b", "/a b"},
	} {
		require.Equal(t, c.want, throttle.RawPath(&http.Request{URL: &url.URL{Path: c.path}}), "%q", c.path)
	}
}

func TestMethod(t *testing.T) {
	require.Equal(t, "GET", throttle.Method(&http.Request{}))
	require.Equal(t, "POST", throttle.Method(&http.Request{Method: "POST"}))
}

func TestKeysOfARequestWithoutURL(t *testing.T) {
	r := &http.Request{}
	require.Empty(t, throttle.Query("app")(r))
	require.Empty(t, throttle.Host(r))
	require.Equal(t, "/", throttle.RawPath(r))
}

func constant(s string) func(*http.Request) string {
	return func(*http.Request) string { return s }
}

// joined is what Join makes of values.
func joined(values ...string) string {
	var fs []func(*http.Request) string
	for _, v := range values {
		fs = append(fs, constant(v))
	}
	return throttle.Join(fs...)(&http.Request{})
}

func TestJoin(t *testing.T) {
	require.Empty(t, joined())
	require.Equal(t, "0:", joined(""))
	require.Equal(t, "3:app", joined("app"))
	require.Equal(t, "3:app5:/path", joined("app", "/path"))
	require.Equal(t, "200:"+strings.Repeat("x", 200), joined(strings.Repeat("x", 200)))
}

func TestJoinIsInjective(t *testing.T) {
	seen := map[string][]string{}
	parts := []string{"", "a", "b", "ab", ":", "1:a", "0:", "0:0:", "a\x00", "\x00", "/", "2:0:"}
	note := func(values ...string) {
		key := joined(values...)
		require.NotContains(t, seen, key, "%q and %q", values, seen[key])
		seen[key] = values
	}
	note()
	for _, a := range parts {
		note(a)
		for _, b := range parts {
			note(a, b)
			for _, c := range parts {
				note(a, b, c)
			}
		}
	}
	require.Len(t, seen, 1+12+12*12+12*12*12)
}

func TestJoinKeepsItsFunctions(t *testing.T) {
	fs := []func(*http.Request) string{constant("a")}
	key := throttle.Join(fs...)
	fs[0] = constant("b")
	require.Equal(t, "1:a", key(&http.Request{}))
}

// FuzzJoin cuts two texts into values at each newline.
func FuzzJoin(f *testing.F) {
	f.Add("a\nb", "ab")
	f.Add("1:a", "a\n")
	f.Add("0:", "\n")
	f.Add("\n\n", "\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		va, vb := strings.Split(a, "\n"), strings.Split(b, "\n")
		require.Equal(t, a == b, joined(va...) == joined(vb...))
	})
}

// FuzzQuery compares with what net/url reads.
func FuzzQuery(f *testing.F) {
	f.Add("a=1&b=2", "b")
	f.Add("%61=%zz&a=2;3&a=+", "a")
	f.Add("=1&&a", "")
	f.Fuzz(func(t *testing.T, query, name string) {
		u := &url.URL{RawQuery: query}
		require.Equal(t, u.Query().Get(name), throttle.Query(name)(&http.Request{URL: u}))
	})
}

func BenchmarkKey(b *testing.B) {
	u, err := url.Parse("https://oapi.dingtalk.com/topapi/user/get?lang=zh_CN&access_token=0123456789abcdef")
	require.NoError(b, err)
	r := &http.Request{URL: u, Header: http.Header{"X-App": {"ding0123456789"}}}
	for name, key := range map[string]func(*http.Request) string{
		"query": throttle.Query("access_token"),
		"host":  throttle.Host,
		"path":  throttle.RawPath,
		"join":  throttle.Join(throttle.Header("X-App"), throttle.RawPath),
	} {
		b.Run(name, func(b *testing.B) {
			require.NotEmpty(b, key(r))
			b.ReportAllocs()
			for b.Loop() {
				key(r)
			}
		})
	}
}

// TestRoute: paths with ids share the key of their route, and what has no route shares one.
func TestRoute(t *testing.T) {
	key := throttle.Route("/users/{id}", "GET /users/{id}/posts", "/files/")
	for path, want := range map[string]string{
		"/users/1": "/users/{id}", "/users/2": "/users/{id}", "/users/1/posts": "GET /users/{id}/posts",
		"/files/a/b": "/files/", "/users/1/likes": "", "/": "", "/users/a/../1": "/users/{id}",
	} {
		require.Equal(t, want, key(&http.Request{URL: &url.URL{Path: path}}), path)
	}
	require.Empty(t, key(&http.Request{Method: "POST", URL: &url.URL{Path: "/users/1/posts"}}))
	require.Empty(t, key(&http.Request{}))
	require.Equal(t, "/{x}/b", throttle.Route("/{x}/b", "/a/{y}")(&http.Request{URL: &url.URL{Path: "/a/b"}}), "the first counts")
}

// TestKeysThatCannotWork: New refuses a key, or a share, that would be the same for every request, or that speaks of what
// Match does not have, however deep it is joined. It calls no function of the program's own.
func TestKeysThatCannotWork(t *testing.T) {
	own := func(*http.Request) string { panic("a function of the program is not called") }
	ends := func(texts ...string) []string { return texts }
	const noWildcard = " reads a wildcard that Match does not have, so it is empty for every request: write {"
	for _, c := range []struct {
		match string
		key   func(*http.Request) string
		wrong []string // what each mistake begins with
	}{
		{"a.com/{id}", throttle.PathValue("id"), nil},
		{"{shop}.a.com/", throttle.Join(throttle.PathValue("shop"), own, throttle.Host), nil},
		{"a.com/{rest...}", throttle.PathValue("rest"), nil},
		{"a.com/", throttle.Join(throttle.Header("X-App"), throttle.Query("a"), throttle.BodyMember("m"), throttle.Route("/a", "/")), nil},
		{"a.com/", own, nil},
		{"a.com/", throttle.PathValue("id"), ends(`PathValue("id")` + noWildcard)},
		{"a.com/{ID}", throttle.PathValue("id"), ends(`PathValue("id")` + noWildcard)},
		{"a.com/{id}", throttle.Join(own, throttle.Join(throttle.PathValue("ID"), throttle.PathValue("id"), throttle.PathValue("x"))),
			ends(`PathValue("ID")`+noWildcard, `PathValue("x")`+noWildcard)},
		{"a.com/", throttle.PathValue(""), ends(`PathValue("") names nothing`)},
		{"a.com/", throttle.Query(""), ends(`Query("") names nothing`)},
		{"a.com/", throttle.BodyMember(""), ends(`BodyMember("") names nothing`)},
		{"a.com/", throttle.Header(""), ends(`Header("") is no name of a header field`)},
		{"a.com/", throttle.Header("X App"), ends(`Header("X App") is no name of a header field`)},
		{"a.com/", throttle.Header("X-Äpp"), ends(`Header("X-Äpp") is no name of a header field`)},
		{"a.com/", throttle.Header("host"), ends(`Header("Host") is always empty`)},
		{"a.com/", throttle.Join(), ends("Join() of nothing is the same key for every request")},
		{"a.com/", throttle.Join(nil, throttle.Header(""), throttle.Join()), ends("Join has a function that is nil", `Header("") is no name`, "Join() of nothing")},
		{"a.com/", throttle.Route(), ends("Route() has no pattern")},
		{"a.com/", throttle.Route("users/{id", "", "/ok", "/{a}/{a}"), ends(`Route: pattern "users/{id": at offset 6: bad wildcard`, `Route: pattern "": is empty`, `Route: pattern "/{a}/{a}": at offset`)},
		{"a.com/", throttle.Join(throttle.Route("/users/{id}", "/users/me", "GET /users/{x}", "/users/")),
			ends(`Route: pattern "/users/me" never counts, because "/users/{id}" stands before it`, `Route: pattern "GET /users/{x}" never counts`)},
		{"a.com/", throttle.Route("/", "/a"), ends(`Route: pattern "/a" never counts, because "/" stands before it`)},
	} {
		for field, p := range map[string]throttle.Policy{
			"Key":   {Name: "a", Match: c.match, Limit: throttle.PerSecond(1), Key: c.key},
			"Share": {Name: "a", Match: c.match, Limit: throttle.PerSecond(1), Share: c.key},
		} {
			_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
			_, sameErr := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
			require.Equal(t, err, sameErr)
			if c.wrong == nil {
				require.NoError(t, err)
				continue
			}

			all := strings.Split(err.Error(), "\n")
			require.Len(t, all, len(c.wrong), "%v", err)
			for i, begin := range c.wrong {
				require.Truef(t, strings.HasPrefix(all[i], fmt.Sprintf(`throttle: policy "a": %s: %s`, field, begin)), "%s", all[i])
			}
		}
	}
}

// TestAWrongRouteInsideAFunction: where New cannot look, the requests are refused with what is wrong.
func TestAWrongRouteInsideAFunction(t *testing.T) {
	wrong := throttle.Route("users")
	p := throttle.Policy{Name: "a", Match: "/", Limit: throttle.PerSecond(1), Key: func(r *http.Request) string { return wrong(r) }}
	tr, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.NoError(t, err)
	_, err = tr.RoundTrip(&http.Request{URL: &url.URL{Scheme: "http", Host: "a.invalid", Path: "/"}})
	require.ErrorContains(t, err, `policy "a": Key: Route: pattern "users": at offset 5: no path`)
}
