package match

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, texts ...string) []*Pattern {
	t.Helper()
	ps := make([]*Pattern, len(texts))
	for i, s := range texts {
		p, err := Parse(s)
		require.NoError(t, err, "pattern %q", s)
		ps[i] = p
	}
	return ps
}

// request returns an outbound request as [http.Client] hands it to a transport.
func request(t testing.TB, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	return r
}

func TestParsePatternErrors(t *testing.T) {
	for _, tt := range []struct{ pattern, want string }{
		{"api.example.com", `at offset 15: no path: end the host with a slash, "api.example.com/", to match all its paths`},
		{"GET", `at offset 3: no path: end the host with a slash, "GET/", to match all its paths`},
		{"G(T /x", `at offset 0: invalid method "G(T" (a space in a path is written %20)`},
		{"/a b", `at offset 0: invalid method "/a" (a space in a path is written %20)`},
		{"GET https://a.com/", `at offset 4: a pattern has no scheme: leave out "https://"`},
		{"https://a.com/", `at offset 0: a pattern has no scheme: leave out "https://"`},
		{"user@a.com/", `at offset 4: '@' does not belong in a host`},
		{"GET b.com a.com/", `at offset 9: ' ' does not belong in a host`},
		{"a..com/", `at offset 2: empty label in the host`},
		{".com/", `at offset 0: empty label in the host`},
		{"./", `at offset 0: empty label in the host`},
		{":80/", `at offset 0: empty label in the host`},
		{"*..com/", `at offset 2: empty label in the host`},
		{"*./", `at offset 0: "*" stands only at the front of a longer host, as in "*.example.com/"; ` +
			`leave the host out to match every host, or name the label, as in "{name}.example.com/"`},
		{"*/", `at offset 0: "*" stands only at the front of a longer host, as in "*.example.com/"; ` +
			`leave the host out to match every host, or name the label, as in "{name}.example.com/"`},
		{"a.*.com/", `at offset 2: "*" stands only at the front of a longer host, as in "*.example.com/"; ` +
			`leave the host out to match every host, or name the label, as in "{name}.example.com/"`},
		{"x*.com/", `at offset 1: '*' does not belong in a host`},
		{"a.com:/", `at offset 5: bad port ":": a port is a number from 1 to 65535`},
		{"a.com:http/", `at offset 5: bad port ":http": a port is a number from 1 to 65535`},
		{"a.com:0/", `at offset 5: bad port ":0": a port is a number from 1 to 65535`},
		{"a.com:65536/", `at offset 5: bad port ":65536": a port is a number from 1 to 65535`},
		{"[::1/", `at offset 0: bad IPv6 address "[:"`},
		{"[::g]/", `at offset 0: bad IPv6 address "[::g]"`},
		{"[127.0.0.1]/", `at offset 0: bad IPv6 address "[127.0.0.1]"`},
		{"{a}.0.0.1/", `at offset 8: an IP address has no wildcards`},
		{"GET *.0.0.1:80/", `at offset 10: an IP address has no wildcards`},
		{"{a.com/", `at offset 0: bad wildcard "{a": it takes up a whole segment or label, as in {name}`},
		{"x.{a...}.com/", `at offset 4: "..." does not belong in a host: write "*." at its front for one or more labels`},
		{"{$}.com/", `at offset 0: "{$}" stands only at the end of a path`},
		{"/a?b=c", `at offset 2: only paths are matched: leave out the query, or write %3F for '?'`},
		{"a.com/x#y", `at offset 7: only paths are matched: leave out the query, or write %23 for '#'`},
		{"/a//b", `at offset 3: a segment "" matches nothing, because paths are cleaned first`},
		{"GET /a/../b", `at offset 7: a segment ".." matches nothing, because paths are cleaned first`},
		{"a.com/.", `at offset 6: a segment "." matches nothing, because paths are cleaned first`},
		{"/a{x}", `at offset 1: bad wildcard "a{x}": it takes up a whole segment or label, as in {name}`},
		{"/{x}a", `at offset 1: bad wildcard "{x}a": it takes up a whole segment or label, as in {name}`},
		{"/{}", `at offset 2: bad wildcard name "": it is a Go identifier`},
		{"/{...}", `at offset 2: bad wildcard name "": it is a Go identifier`},
		{"/{1}", `at offset 2: bad wildcard name "1": it is a Go identifier`},
		{"/{a-b}", `at offset 2: bad wildcard name "a-b": it is a Go identifier`},
		{"/{$}/", `at offset 1: "{$}" stands only at the end of a path`},
		{"/{x...}/a", `at offset 1: "{x...}" stands only at the end of a path`},
		{"/{x}/{x}", `at offset 6: the wildcard name "x" stands twice`},
		{"{x}.a.com/b/{x...}", `at offset 13: the wildcard name "x" stands twice`},
		{"{x}.{x}.com/", `at offset 5: the wildcard name "x" stands twice`},
	} {
		_, err := Parse(tt.pattern)
		require.EqualError(t, err, tt.want, "pattern %q", tt.pattern)
	}
}

func TestBind(t *testing.T) {
	for _, tt := range []struct {
		name, pattern, url string
		want               map[string]string
	}{
		{"label", "{shop}.myshopify.com/admin/", "https://Acme.MyShopify.com/admin/x", map[string]string{"shop": "acme"}},
		{"labels", "*.{b}.{a}.com./", "https://x.y.B.a.com/", map[string]string{"a": "a", "b": "b"}},
		{"segment", "/v1/users/{id}/x", "https://a.com/v1/users/7/x", map[string]string{"id": "7"}},
		{"escaped", "/{x}/b", "https://a.com/a%2Fb%20c/b", map[string]string{"x": "a/b c"}},
		{"cleaned", "/{x}", "https://a.com/a/../b", map[string]string{"x": "b"}},
		{"hidden dots", "/u/{x}", "https://a.com/u/z/%2e%2e/b", map[string]string{"x": "b"}},
		{"hidden dots, both match", "/u/{x...}", "https://a.com/u/a/%2e%2e/b", map[string]string{"x": "b"}},
		{"hidden dots, as they are", "/u/{x}/{y}/b", "https://a.com/u/a/%2e%2e/b", map[string]string{"x": "a", "y": ".."}},
		{"rest", "/a/{rest...}", "https://a.com/a/b%2Fc/d/", map[string]string{"rest": "b/c/d/"}},
		{"rest not escaped", "/a/{rest...}", "https://a.com/a/b/d", map[string]string{"rest": "b/d"}},
		{"empty rest", "/a/{rest...}", "https://a.com/a/", map[string]string{"rest": ""}},
		{"all", "GET {h}.com:443/{s}/{r...}", "https://a.com/b/c", map[string]string{"h": "a", "s": "b", "r": "c"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustParse(t, tt.pattern)[0]
			r := request(t, "GET", tt.url)
			require.Equal(t, []int32{0}, NewIndex([]*Pattern{p}).Match(nil, r))
			bound := p.Bind(r)
			got := map[string]string{}
			for name := range maps.Keys(tt.want) {
				got[name] = bound.PathValue(name)
			}
			require.Equal(t, tt.want, got)
		})
	}
}

// TestBoundForManyPatterns: of patterns that match one request each gets its own values, and those that
// get the same values share a copy of the request.
func TestBoundForManyPatterns(t *testing.T) {
	r := request(t, "GET", "https://a.com/b/c/d")
	texts := []string{
		"{x}.com/", "{x}.com/b/", "GET {x}.com/b/c/{$}", "{y}.com/", "*.com/{x}/", "{x}.com/{y}/", "{y}.com/{x}/", "{x}.com/{y}/c/", "/{x}/", "/b/{x}/",
		"/{x...}", "/b/{x...}", "/b/c/{x...}", "/{y}/{x...}", "*.com/", "/b/",
	}
	all := mustParse(t, texts...)
	for i, first := range all {
		for j, second := range all {
			var bound Bound
			bound.For(first, r)
			got, want := bound.For(second, r), second.Bind(r)
			for _, name := range []string{"x", "y"} {
				require.Equal(t, want.PathValue(name), got.PathValue(name), "%s after %s: %s", texts[j], texts[i], name)
			}
		}
	}
	var bound Bound
	require.Same(t, bound.For(all[0], r), bound.For(all[1], r), "one copy")
}

func TestBindNeedsNoCopyWithoutNames(t *testing.T) {
	r := request(t, "GET", "https://a.b.com/x/y")
	require.Same(t, r, mustParse(t, "*.b.com/x/")[0].Bind(r))
}

// A request that a server passes on carries the path values of its own mux.
func TestBindLeavesTheRequestAlone(t *testing.T) {
	p := mustParse(t, "{host}.com/{id}/{other}")[0]
	var served bool
	mux := http.NewServeMux()
	mux.HandleFunc("/{id}/{kept}", func(_ http.ResponseWriter, r *http.Request) {
		served = true
		r.SetPathValue("host", "before")
		r.Header = http.Header{"A": {"b"}}
		r.Trailer = http.Header{"C": {"d"}}
		r.Form, r.PostForm = map[string][]string{"e": {"f"}}, map[string][]string{"g": {"h"}}
		want := r.Clone(r.Context())

		bound := p.Bind(r)

		require.Equal(t, want, r)
		require.Equal(t, "before", r.PathValue("host"))
		require.Equal(t, "1", r.PathValue("id"))
		require.Equal(t, "a", bound.PathValue("host"))
		require.Equal(t, "1", bound.PathValue("id"))
		require.Equal(t, "2", bound.PathValue("other"))
		require.Equal(t, "2", bound.PathValue("kept"))
		for _, name := range []string{"host", "id", "other"} {
			bound.SetPathValue(name, "")
			bound.SetPathValue("kept", "")
			want.SetPathValue(name, r.PathValue(name))
		}
		require.Equal(t, "1", r.PathValue("id"))
		require.Equal(t, "2", r.PathValue("kept"))
		require.Same(t, r.URL, bound.URL)
		require.Equal(t, r.Context(), bound.Context())
		require.Equal(t, r.Header, bound.Header)
		require.Equal(t, r.Trailer, bound.Trailer)
		require.Equal(t, r.Form, bound.Form)
		require.Equal(t, r.PostForm, bound.PostForm)
	})
	mux.ServeHTTP(nil, request(t, "GET", "https://a.com/1/2"))
	require.True(t, served)
}

// bind is meant for requests that match, and harmless for others.
func TestBindOfAnotherRequest(t *testing.T) {
	p := mustParse(t, "{a}.{b}.com/{c}/{d}/{e...}")[0]
	for _, r := range []*http.Request{{}, request(t, "GET", "https://com/x"), request(t, "GET", "/")} {
		require.Empty(t, p.Bind(r).PathValue("a"))
	}
}

// TestBoundOfAPathThatHidesDots: the patterns may see different paths of it, so each gets its own values.
func TestBoundOfAPathThatHidesDots(t *testing.T) {
	r := request(t, "GET", "https://a.com/users/9/%2e%2e/%2e%2e/teams/2/x")
	ps := mustParse(t, "/users/{id}/", "/teams/{id}/", "/users/{id}/")
	require.Equal(t, []int32{0, 1, 2}, NewIndex(ps).Match(nil, r), "premise: one as it is written, one as it is decoded")
	var bound Bound
	for i, want := range []string{"9", "2", "9"} {
		require.Equal(t, want, ps[i].Bind(r).PathValue("id"))
		require.Equal(t, want, bound.For(ps[i], r).PathValue("id"))
	}
}

func TestGroups(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns []string
		want     []string
	}{
		{"last two labels", []string{"oapi.dingtalk.com/", "*.DingTalk.com:443/x", "dingtalk.com./", "{x}.open.feishu.cn/"},
			[]string{"dingtalk.com", "dingtalk.com", "dingtalk.com", "feishu.cn"}},
		{"whole host", []string{"localhost:8080/", "127.0.0.1/", "10.0.0.1/", "[::1]:80/", "[FE80::1]/"},
			[]string{"localhost", "127.0.0.1", "10.0.0.1", "[::1]", "[fe80::1]"}},
		{"no host", []string{"a.com/", "", "127.0.0.1/"}, []string{"*", "*", "*"}},
		{"path only", []string{"a.com/", "GET /x"}, []string{"*", "*"}},
		{"wildcard last", []string{"a.com/", "b.{zone}/"}, []string{"*", "*"}},
		{"only label", []string{"a.com/", "{host}:8080/"}, []string{"*", "*"}},
		{"many labels", []string{"x.a.com/", "*.com/", "b.org/", "com/"}, []string{"com", "com", "b.org", "com"}},
		{"wildcard before last", []string{"x.a.com/", "x.{y}.com/", "b.org/"}, []string{"com", "com", "b.org"}},
		{"below one label", []string{"svc.localhost/", "*.localhost/", "localhost/"},
			[]string{"localhost", "localhost", "localhost"}},
		{"below a registry of a country", []string{"open.a.com.cn/", "*.b.com.cn/", "c.co.uk/", "{x}.d.co.uk/", "com.cn/", "x.com.io.com/"},
			[]string{"a.com.cn", "b.com.cn", "c.co.uk", "d.co.uk", "com.cn", "io.com"}},
		{"all of a registry", []string{"a.com.cn/", "*.com.cn/", "b.net.cn/", "c.cn/", "com.cn/"}, []string{"com.cn", "com.cn", "b.net.cn", "c.cn", "com.cn"}},
		{"a wildcard below a registry", []string{"a.com.cn/", "x.{y}.com.cn/", "b.net.cn/"}, []string{"com.cn", "com.cn", "b.net.cn"}},
		{"all of a country", []string{"a.com.cn/", "*.cn/", "*.com.cn/", "a.co.uk/"}, []string{"cn", "cn", "cn", "a.co.uk"}},
		{"a wildcard in the place of a registry", []string{"a.com.cn/", "a.{zone}.cn/", "b.cn/"}, []string{"cn", "cn", "cn"}},
		{"address apart", []string{"1.2.3.4/", "3.4/", "*.com/"}, []string{"1.2.3.4", "3.4", "com"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Groups(mustParse(t, tt.patterns...)))
		})
	}
}

// The group is part of a store's keys: a new row for another upstream must not
// make the fleet forget what it has used.
func TestGroupsStayWhenUnrelatedPatternsCome(t *testing.T) {
	ps := mustParse(t, "api.github.com/", "{shop}.myshopify.com/admin/", "*.cn/", "open.feishu.cn/", "10.0.0.1/")
	alone := Groups(ps)
	more := mustParse(t, "slack.com/", "*.org/", "{x}.io/", "localhost/", "10.0.0.2/", "[::1]/", "*.dingtalk.net/", "*.com.tw/")
	require.Equal(t, alone, Groups(append(ps, more...))[:len(ps)])
	for i, p := range ps[:3] {
		own, _ := p.Group()
		require.Equal(t, alone[i], own)
	}
}
