package match

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		name, pattern string
		yes, no       []string // "[METHOD ]URL"
	}{
		{"empty", "", []string{"https://a.com", "PUT http://[::1]:1/x/", "/x"}, nil},
		{"host", "a.com/",
			[]string{"https://a.com", "https://A.COM/x", "https://a.com./", "https://a.com:443/", "http://a.com:8443/x/y"},
			[]string{"https://b.com/", "https://x.a.com/", "https://com/", "https://a.com../", "https://.a.com/", "/x"}},
		{"pattern in capitals", "A.Com./x", []string{"https://a.com/x", "https://a.COM./x"}, []string{"https://a.com/X"}},
		{"port", "a.com:8080/",
			[]string{"http://a.com:8080/", "https://A.com.:08080/"},
			[]string{"http://a.com/", "http://a.com:80/", "http://a.com:808/"}},
		{"default port", "a.com:443/",
			[]string{"https://a.com/", "https://a.com:443/", "http://a.com:443/", "https://a.com:/"},
			[]string{"http://a.com/", "https://a.com:80/", "ftp://a.com/"}},
		{"port 80", "a.com:080/", []string{"http://a.com/x", "https://a.com:80/"}, []string{"https://a.com/"}},
		{"many labels", "*.a.com/",
			[]string{"https://x.a.com/", "https://X.y.A.com:1/"},
			[]string{"https://a.com/", "https://xa.com/", "https://.a.com/", "https://x..a.com/"}},
		{"one label", "{shop}.a.com/admin/",
			[]string{"https://x.a.com/admin/", "https://X.a.com/admin/y"},
			[]string{"https://a.com/admin/", "https://x.y.a.com/admin/", "https://.a.com/admin/", "https://x.a.com/admin"}},
		{"label in the middle", "x.{y}.com/", []string{"https://x.a.com/"}, []string{"https://x.com/", "https://y.a.com/"}},
		{"one label alone", "{host}/", []string{"http://localhost:8080/"}, []string{"http://a.com/", "/x"}},
		{"many and one", "*.{a}.com/", []string{"http://y.x.com/", "http://z.y.x.com"}, []string{"http://x.com/"}},
		{"IPv4", "127.0.0.1/", []string{"http://127.0.0.1:8080/x"}, []string{"http://127.0.0.2/"}},
		{"IPv6", "[::A]/", []string{"http://[::a]/", "http://[::A]:8080/"}, []string{"http://[::b]/"}},
		{"IPv6 and port", "[::1]:80/", []string{"http://[::1]/", "http://[::1]:80/"}, []string{"http://[::1]:81/"}},
		{"IDN", "bücher.example/", []string{"https://bücher.EXAMPLE/"}, []string{"https://bÜcher.example/"}},
		{"GET", "GET /x", []string{"GET /x", "HEAD /x", " /x"}, []string{"POST /x", "get /x"}},
		{"HEAD", "HEAD /x", []string{"HEAD /x"}, []string{"GET /x"}},
		{"method of the caller's own", "PROPFIND a.com/", []string{"PROPFIND http://a.com"}, []string{"GET http://a.com/"}},
		{"any method", "\t/x", []string{"GET /x", "POST /x", "CONNECT /x"}, nil},
		{"path", "/a/b", []string{"/a/b", "//x/a/b", "/a//b", "/a/./b", "/x/../a/b", "/../a/b", "/%61/b"},
			[]string{"/a", "/a/b/", "/a/b/c", "/a/b/..", "/a%2Fb", "/A/b", "/"}},
		{"subtree", "/a/", []string{"/a/", "/a/b", "/a/b/", "/b/../a/", "/a/b/../"}, []string{"/a", "/", "/ab", "/a/.."}},
		{"root", "/", []string{"/", "", "http://a.com", "/a/b", "/.."}, nil},
		{"root alone", "/{$}", []string{"/", "http://a.com", "/a/..", "/./"}, []string{"/a", "/a/", "/%2F"}},
		{"slash", "/a/{$}", []string{"/a/", "/a//"}, []string{"/a", "/a/b", "/a/b/", "/a/%2F"}},
		{"segment", "/a/{x}", []string{"/a/b", "/a/%2F", "/a/b%2Fc", "/a/%20"}, []string{"/a", "/a/", "/a/b/", "/a/b/c"}},
		{"rest", "/a/{x...}", []string{"/a/", "/a/b", "/a/b/c/"}, []string{"/a", "/b/"}},
		{"segments", "/{x}/b/{y}/", []string{"/a/b/c/", "/a/b/c/d"}, []string{"/a/b/c", "/a/c/c/"}},
		{"escaped literal", "/a%2Fb/c%20d", []string{"/a%2Fb/c%20d", "/a%2fb/c%20d"}, []string{"/a/b/c%20d"}},
		{"escaped dots", "/a/%2e%2e/b", []string{"/a/%2e%2e/b"}, []string{"/a/../b", "/b"}},
		{"hidden dots", "/send",
			[]string{"/x/%2e%2e/send", "/x/%2E./send", "/%2e/send", "/x/..%2fsend", "/x%2F../send", `/x/..\send`, "/x/..%5csend", "/x/../%2e/%73end"},
			[]string{"/x/%2e%2e/", "/x/%2e%2esend", "/%2fsend", "/x/%252e%252e/send", "/x/send%2f.", "/%2e%2e/send/"}},
		{"hidden dots as they are", "/x/", []string{"/x/%2e%2e/send", "/x/..%2fsend", "/y/%2e%2e/x/"}, []string{"/y/%2e%2e/x"}},
		{"broken escape", "/100%/x", []string{"/100%25/x"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := NewIndex(mustParse(t, tt.pattern))
			for _, s := range tt.yes {
				require.Equal(t, []int32{0}, x.Match(nil, requestLine(t, s)), "%q should match %q", tt.pattern, s)
			}
			for _, s := range tt.no {
				require.Empty(t, x.Match(nil, requestLine(t, s)), "%q should not match %q", tt.pattern, s)
			}
		})
	}
}

// requestLine returns the outbound request "[METHOD ]URL".
func requestLine(t testing.TB, s string) *http.Request {
	t.Helper()
	method, raw, ok := strings.Cut(s, " ")
	if !ok {
		method, raw = "GET", s
	}
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return &http.Request{Method: method, URL: u}
}

// The request goes to the URL's host, whatever the Host field says.
func TestMatchLooksAtTheHostOfTheURL(t *testing.T) {
	x := NewIndex(mustParse(t, "a.com/", "b.com/"))
	r := request(t, "GET", "https://a.com/")
	r.Host = "b.com"
	require.Equal(t, []int32{0}, x.Match(nil, r))
}

// No URL, however odd, may panic; what cannot be told apart matches as little
// as it can.
func TestMatchOddURLs(t *testing.T) {
	x := NewIndex(mustParse(t, "", "a.com/x/", "/{x}/{$}", "GET /x/y"))
	for _, tt := range []struct {
		name string
		r    *http.Request
		want []int32
	}{
		{"zero", &http.Request{}, []int32{0}},
		{"empty URL", &http.Request{URL: &url.URL{}}, []int32{0}},
		{"CONNECT", &http.Request{Method: "CONNECT", URL: &url.URL{Opaque: "a.com:443", Host: "a.com:443"}}, []int32{0}},
		{"star", &http.Request{Method: "OPTIONS", URL: &url.URL{Host: "a.com", Path: "*"}}, []int32{0}},
		{"no slash", &http.Request{URL: &url.URL{Host: "a.com", Path: "x/y"}}, []int32{0, 1, 3}},
		{"opaque", &http.Request{URL: &url.URL{Host: "a.com", Opaque: "/x/%79?z=/"}}, []int32{0, 1, 3}},
		{"opaque with host", &http.Request{URL: &url.URL{Host: "a.com", Opaque: "//b.com/x/z"}}, []int32{0, 1}},
		{"opaque host", &http.Request{URL: &url.URL{Host: "a.com", Opaque: "//b.com"}}, []int32{0}},
		{"broken opaque", &http.Request{URL: &url.URL{Host: "a.com", Opaque: "/x/%7"}}, []int32{0, 1}},
		{"opaque with dots", &http.Request{URL: &url.URL{Host: "a.com", Opaque: "/z/%2e%2e/x/%zz"}}, []int32{0, 1}},
		{"other RawPath", &http.Request{URL: &url.URL{Path: "/x/y", RawPath: "/x/z"}}, []int32{0, 3}},
		{"shorter RawPath", &http.Request{URL: &url.URL{Path: "/x/y", RawPath: "/x"}}, []int32{0, 3}},
		{"broken RawPath", &http.Request{URL: &url.URL{Path: "/%78/y", RawPath: "/%78/y"}}, []int32{0}},
		{"RawPath not encoded", &http.Request{URL: &url.URL{Host: "a.com", Path: "/x/y z", RawPath: "/x%2Fy z"}}, []int32{0, 1}},
		{"host of colons", &http.Request{URL: &url.URL{Host: ":::"}}, []int32{0}},
		{"host of brackets", &http.Request{URL: &url.URL{Host: "]["}}, []int32{0}},
		{"host of dots", &http.Request{URL: &url.URL{Host: "..."}}, []int32{0}},
	} {
		require.Equal(t, tt.want, x.Match(nil, tt.r), tt.name)
	}
}

func TestMatchAppendsInOrder(t *testing.T) {
	x := NewIndex(mustParse(t, "a.com/x", "b.com/", "/x", "GET a.com/{p}", "*.com/", "", "a.com:443/", "{h}.com/x", "a.com/x"))
	got := x.Match([]int32{9, 7}, request(t, "GET", "https://a.com/x"))
	require.Equal(t, []int32{9, 7, 0, 2, 3, 4, 5, 6, 7, 8}, got)
}

// TestMatchOfManySiblings: some are compared, the others looked up.
func TestMatchOfManySiblings(t *testing.T) {
	x := NewIndex(mustParse(t, "a.com/a", "a.com/b", "a.com/c", "a.com/d", "a.com/e", "a.com/f%20f", "b.a.com/", "a.com/a"))
	for path, want := range map[string][]int32{"a": {0, 7}, "d": {3}, "e": {4}, "f%20f": {5}, "f+f": nil, "g": nil} {
		require.Equal(t, want, x.Match(nil, request(t, "GET", "https://a.com/"+path)), path)
		require.Equal(t, want, x.Match(nil, request(t, "GET", "https://A.com.:443/"+path)), path)
	}
	require.Equal(t, []int32{6}, x.Match(nil, request(t, "GET", "https://b.a.com/x")))
}

func TestMatchDoesNotAllocate(t *testing.T) {
	x := NewIndex(mustParse(t, "*.example.com/a%20b/", "{x}.example.com/{y}/c/", "/{r...}", "HEAD api.example.com/"))
	dst := make([]int32, 0, 4)
	for _, raw := range []string{
		"https://api.example.com/a%20b/c/d",
		"https://API.EXAMPLE.COM.:443/a%20b/c/d/../e%2Ff//",
	} {
		r := request(t, "HEAD", raw)
		require.Zero(t, testing.AllocsPerRun(100, func() { dst = x.Match(dst[:0], r) }), raw)
		require.Equal(t, []int32{0, 1, 2, 3}, dst)
	}
}

// matches is the definition, in other words than the index: a regular
// expression for the host, the standard library's own cleaning for the path.
func matches(t testing.TB, text string, r *http.Request) bool {
	method, text := cutMethod(text)
	host, pat, _ := strings.Cut(text, "/")
	host, port, _ := strings.Cut(host, ":")
	reqPort := r.URL.Port()
	if reqPort == "" {
		reqPort = map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	}
	methodOK := method == "" || method == r.Method || method == "GET" && r.Method == "HEAD"
	portOK := port == "" || port == reqPort
	segs := strings.Split(pat, "/")
	pathOK := pathMatches(t, segs, cleanSegments(t, r.URL)) || hides(t, r.URL) && pathMatches(t, segs, cleanSegments(t, decodedURL(t, r.URL)))
	return methodOK && portOK && hostMatches(t, host, r.URL.Hostname()) && pathOK
}

func cutMethod(text string) (method, rest string) {
	if method, rest, ok := strings.Cut(text, " "); ok {
		return method, rest
	}
	return "", text
}

func hostMatches(t testing.TB, pat, host string) bool {
	if pat == "" {
		return true
	}
	exp := regexp.QuoteMeta(strings.TrimSuffix(pat, "."))
	exp = strings.Replace(exp, `\*\.`, `([^.]+\.)+`, 1)
	exp = regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllLiteralString(exp, `[^.]+`)
	ok, err := regexp.MatchString(`^(?i:`+exp+`)\.?$`, host)
	require.NoError(t, err)
	return ok
}

// cleanSegments returns what lies between the slashes of the cleaned path: the
// last one is empty if the path ends with a slash.
func cleanSegments(t testing.TB, u *url.URL) []string {
	segs := strings.Split(cleaned(u.EscapedPath())[1:], "/")
	for i, s := range segs {
		var err error
		segs[i], err = url.PathUnescape(s)
		require.NoError(t, err)
	}
	return segs
}

// cleaned is [path.Clean] for the path of a URL: a slash at its end stays.
func cleaned(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

func pathMatches(t testing.TB, pat, segs []string) bool {
	switch {
	case len(pat) == 0 || len(segs) == 0:
		return len(pat) == len(segs)
	case len(pat) == 1 && (pat[0] == "" || strings.HasSuffix(pat[0], "...}")):
		return true
	case pat[0] == "{$}":
		return len(segs) == 1 && segs[0] == ""
	case strings.HasPrefix(pat[0], "{"):
		return segs[0] != "" && pathMatches(t, pat[1:], segs[1:])
	}
	literal, err := url.PathUnescape(pat[0])
	require.NoError(t, err)
	return literal == segs[0] && pathMatches(t, pat[1:], segs[1:])
}

// maker makes up patterns and requests of few words, so that many meet.
type maker struct{ *rand.Rand }

func (m maker) one(of ...string) string { return of[m.IntN(len(of))] }

// narrow are hosts whose patterns stay in the group of their last two labels.
var narrow = []string{"*.a.com", "{h}.a.com", "*.{h}.a.com", "A.com", "a.com.", "b.a.com", "b.com", "a", "10.0.0.1"}

func (m maker) pattern(wide bool) string {
	var b strings.Builder
	b.WriteString(m.one("", "", "", "GET ", "HEAD ", "POST "))
	hosts := narrow
	if wide {
		hosts = slices.Concat(hosts, []string{"*.com", "*.{h}.com", "{h}.com", "a.{h}.com", "", "", "{h}", "a.{h}", "{g}.{h}"})
	}
	b.WriteString(m.one(hosts...))
	if s := b.String(); s != "" && !strings.HasSuffix(s, " ") {
		b.WriteString(m.one("", "", "", ":80", ":443", ":8080"))
	}
	names := []string{"{x}", "{y}"}
	for i := range m.IntN(3) {
		b.WriteString("/" + m.one("a", "b", "%61", "a%2Fb", "%2F", names[i], names[i]))
	}
	b.WriteString(m.one("/", "/", "/", "/{$}", "/{rest...}", "/a", "/b"))
	return b.String()
}

func (m maker) request(t testing.TB) *http.Request {
	var b strings.Builder
	b.WriteString(m.one("http://", "https://"))
	b.WriteString(m.one("a.com", "A.Com", "b.a.com", "c.b.a.com", "b.com.", "com", "a", "x.y.org", "10.0.0.1", "a..com"))
	b.WriteString(m.one("", "", ":80", ":443", ":8080", ":"))
	for range m.IntN(5) {
		b.WriteString("/" + m.one("a", "a", "b", "b", "%61", "a%2Fb", "%2F", ".", "..", "", "a%20b", "%2e%2E", "%2e", `..\b`, "..%2Fa"))
	}
	b.WriteString(m.one("", "", "/"))
	return request(t, m.one("GET", "HEAD", "POST"), b.String())
}

// Random tables: the index finds what the definition says, all of it, once and
// in order, and everything it finds for one request shares a group.
func TestMatchAgainstDefinition(t *testing.T) {
	soak.WithoutRace(t)
	const seed = 20
	m := maker{rand.New(rand.NewPCG(seed, seed))}
	var found, grouped int
	for table := range 300 {
		texts := make([]string, 1+m.IntN(20))
		for i := range texts {
			texts[i] = m.pattern(table%2 == 0)
		}
		ps := mustParse(t, texts...)
		x, gs := NewIndex(ps), Groups(ps)
		for range 20 {
			r := m.request(t)
			var want []int32
			for i, text := range texts {
				if matches(t, text, r) {
					want = append(want, int32(i))
				}
			}
			require.Equal(t, want, x.Match(nil, r), "seed %d: %s %s against %q", seed, r.Method, r.URL, texts)
			for _, i := range want {
				require.Equal(t, gs[want[0]], gs[i], "seed %d: groups of %q and %q", seed, texts[want[0]], texts[i])
			}
			found += len(want)
			if len(want) > 1 && gs[want[0]] != everyGroup {
				grouped++
			}
		}
	}
	require.Greater(t, found, 1000, "premise: patterns and requests meet")
	require.Greater(t, grouped, 50, "premise: groups other than %q meet", everyGroup)
}

// TestCovers: a pattern that covers another one matches all of its requests, of all requests that are made.
func TestCovers(t *testing.T) {
	soak.WithoutRace(t)
	const seed = 21
	m := maker{rand.New(rand.NewPCG(seed, seed))}
	covered := 0
	for range 30_000 {
		texts := []string{m.pattern(true), m.pattern(true)}
		ps := mustParse(t, texts...)
		if !ps[0].Covers(ps[1]) {
			continue
		}
		covered++
		for range 50 {
			if r := m.request(t); matches(t, texts[1], r) {
				require.True(t, matches(t, texts[0], r), "seed %d: %q covers %q, but not %s %s", seed, texts[0], texts[1], r.Method, r.URL)
			}
		}
	}
	require.Greater(t, covered, 500)

	for _, c := range []struct {
		all, part string
		covers    bool
	}{
		{"/", "GET a.com/x/{y}", true}, {"/users/{id}", "/users/me", true}, {"/users/me", "/users/{id}", false},
		{"/users/", "/users/{id}", true}, {"/users/", "/users", false}, {"/users/{$}", "/users/", false}, {"/users/{rest...}", "/users/", true},
		{"GET /a", "/a", false}, {"/a", "GET /a", true}, {"*.a.com/", "b.a.com/x", true}, {"*.a.com/", "a.com/x", false}, {"{x}.a.com/", "*.a.com/", false},
		{"*.a.com/", "*.a.com/", true}, {"*.a.com/", "*.b.a.com/", true}, {"a.com:80/", "a.com/", false}, {"a.com/", "a.com:80/", true}, {"a.com/", "/", false},
	} {
		ps := mustParse(t, c.all, c.part)
		require.Equal(t, c.covers, ps[0].Covers(ps[1]), "%q and %q", c.all, c.part)
	}
}
