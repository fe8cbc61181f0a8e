package match

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzMatchAgainstServeMux compares one pattern and one request with
// [http.ServeMux], path values included. The differences, all on purpose:
//
//   - "" is a pattern.
//   - Hosts may hold wildcards and a port. The mux takes them as they are, so
//     the pattern's host is given to it in lower case and without a trailing
//     dot, and so is the request's, without its port.
//   - Mistakes that make a pattern match nothing are refused: characters that
//     no host has, a query or fragment, a path that is not clean. The mux
//     refuses the last one only after a method.
//   - There are no redirects: what the mux would redirect to a path with a
//     slash does not match, and a path that is not clean is cleaned at once,
//     for CONNECT as well.
//   - A segment "%2F" is a segment like any other. The mux takes it for a
//     slash at the end.
//   - A request without a method is a GET.
//   - A path that hides dot segments matches as it is, as for the mux, and
//     decoded as well.
func FuzzMatchAgainstServeMux(f *testing.F) {
	for _, s := range [][3]string{
		{"/", "GET", "https://a.com/x"},
		{"GET a.com/b/", "HEAD", "https://A.com:443/b/c"},
		{"/a/{x}/{$}", "POST", "https://a.com/a/b/"},
		{"/a/{x...}", "PUT", "https://a.com/a/b/../c//d%2Fe/"},
		{"/a/{x...}", "GET", "https://a.com/a"},
		{"POST /{x}/b%2Fc/{y}", "POST", "/a%20b/b%2fc/%25"},
		{"/a/%2e%2e/b", "GET", "/a/%2e%2e/b"},
		{"a.com./100%", "", "http://a.com./100%25"},
		{"/ü/{ü}", "GET", "http://a.com/%C3%BC/ü"},
		{"GET  \t/{x}/", "GET", "/x/./"},
		{"/%2F", "GET", "/%2F"},
		{"a.com:80/", "GET", "http://a.com/"},
		{"/a//b", "GET", "/a//b"},
		{"/*", "OPTIONS", "*"},
		{"/send", "GET", "/x/%2e%2e/send"},
		{"/{x...}", "GET", "/a/..%2fb/%2E%2e%5Cc//"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, text, method, rawURL string) {
		if u, err := url.Parse(rawURL); err == nil {
			compareWithServeMux(t, text, &http.Request{Method: method, URL: u})
		}
	})
}

// The same for patterns and requests that are made to meet.
func TestMatchAgainstServeMux(t *testing.T) {
	const seed = 21
	m := maker{rand.New(rand.NewPCG(seed, seed))}
	var matched int
	for range 5000 {
		if compareWithServeMux(t, m.pattern(true), m.request(t)) {
			matched++
		}
	}
	require.Greater(t, matched, 100, "premise: patterns and requests meet")
}

// compareWithServeMux reports whether the pattern and the request could be
// compared and match.
func compareWithServeMux(t *testing.T, text string, r *http.Request) (matched bool) {
	if r.URL.Opaque != "" || r.Method == "CONNECT" {
		return false
	}
	requireSameEscapedPath(t, r.URL)
	p, err := Parse(text)
	if err == nil && (text == "" || p.port != "" || p.wideHost()) {
		return false
	}
	oracle := &muxOracle{text: muxText(text)}
	mux, muxErr := oracle.mux()
	if err != nil {
		require.True(t, muxErr != nil || refusedOnPurpose(text), "%q: %v, but the mux takes it", text, err)
		return false
	}
	require.NoError(t, muxErr, "%q is fine, but the mux refuses it", text)
	if lonelySlash(text) || lonelySlash(r.URL.EscapedPath()) {
		return false
	}
	oracle.names = p.names
	if hides(t, r.URL) {
		decoded := *r
		decoded.URL = decodedURL(t, r.URL)
		mux.ServeHTTP(httptest.NewRecorder(), inbound(t, &decoded))
	}
	if !oracle.matched {
		mux.ServeHTTP(httptest.NewRecorder(), inbound(t, r))
	}
	got := NewIndex([]*Pattern{p}).Match(nil, r)
	require.Equal(t, oracle.matched, len(got) == 1, "%q and %s %s", text, r.Method, r.URL)
	if oracle.matched {
		bound := p.Bind(r)
		for i, name := range p.names {
			require.Equal(t, oracle.values[i], bound.PathValue(name), "%q and %s: %s", text, r.URL, name)
		}
	}
	return oracle.matched
}

// hides is what [HidesDots] reports, in other words.
func hides(t testing.TB, u *url.URL) bool {
	for seg := range strings.SplitSeq(u.EscapedPath(), "/") {
		decoded, err := url.PathUnescape(seg)
		require.NoError(t, err)
		for part := range strings.FieldsFuncSeq(decoded, func(c rune) bool { return c == '/' || c == '\\' }) {
			if (part == "." || part == "..") && part != seg {
				return true
			}
		}
	}
	return false
}

// decodedURL returns the URL that a server serves that decodes first.
func decodedURL(t testing.TB, u *url.URL) *url.URL {
	plain, err := url.PathUnescape(u.EscapedPath())
	require.NoError(t, err)
	d := *u
	d.Path, d.RawPath = cleaned(strings.ReplaceAll(plain, `\`, "/")), ""
	return &d
}

// requireSameEscapedPath compares how the index and the standard library split
// a path at its slashes.
func requireSameEscapedPath(t *testing.T, u *url.URL) {
	p, escaped := pathOf(u)
	got := strings.Split(p, "/")
	want := strings.Split(u.EscapedPath(), "/")
	require.Len(t, got, len(want))
	for i := range want {
		if escaped {
			got[i] = plain(got[i])
		}
		w, err := url.PathUnescape(want[i])
		require.NoError(t, err)
		require.Equal(t, w, got[i])
	}
}

// FuzzMatchRawPath does the same for URLs put together by hand, whose RawPath
// need not fit their Path.
func FuzzMatchRawPath(f *testing.F) {
	f.Add("/a/b c", "/a%2fb%20c")
	f.Add("/a/b c", "/a%2fb c")
	f.Add("/a/b", "/a/b/")
	f.Add("/%41/%", "/%41/%")
	f.Add("*", "%2A")
	f.Fuzz(func(t *testing.T, path, rawPath string) {
		requireSameEscapedPath(t, &url.URL{Path: path, RawPath: rawPath})
	})
}

// A muxOracle is a handler for one pattern that notes what it is given.
type muxOracle struct {
	text    string
	names   []string
	matched bool
	values  []string
}

func (o *muxOracle) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	o.matched = true
	for _, name := range o.names {
		o.values = append(o.values, r.PathValue(name))
	}
}

// mux returns a mux with only the oracle's pattern, or why that is refused.
func (o *muxOracle) mux() (mux *http.ServeMux, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	mux = http.NewServeMux()
	mux.Handle(o.text, o)
	return mux, nil
}

// muxText returns the pattern with its host as the mux needs it.
func muxText(text string) string {
	head := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		head = text[:len(text)-len(strings.TrimLeft(text[i:], " \t"))]
	}
	host, path, ok := strings.Cut(text[len(head):], "/")
	if !ok {
		return text
	}
	return head + strings.TrimSuffix(string(appendLower(nil, host)), ".") + "/" + path
}

// inbound returns the request as a server would see it after the mux's
// redirect to the clean path.
func inbound(t *testing.T, r *http.Request) *http.Request {
	clean := cleaned(r.URL.EscapedPath())
	unescaped, err := url.PathUnescape(clean)
	require.NoError(t, err)
	method := r.Method
	if method == "" {
		method = "GET"
	}
	host, _ := SplitPort(r.URL.Host)
	host = strings.TrimSuffix(string(appendLower(nil, host)), ".")
	return &http.Request{Method: method, Host: host, URL: &url.URL{Path: unescaped, RawPath: clean}}
}

// refusedOnPurpose reports whether a pattern holds one of the mistakes that
// the mux lets pass.
func refusedOnPurpose(text string) bool {
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		text = strings.TrimLeft(text[i:], " \t")
	}
	host, rest, _ := strings.Cut(text, "/")
	odd := strings.ContainsFunc(host, notInLabel) || strings.Contains(host, "..") || strings.HasPrefix(host, ".")
	return text == "" || cleaned("/"+rest) != "/"+rest || odd || strings.ContainsAny(rest, "?#")
}

// lonelySlash reports whether one segment is nothing but an escaped slash.
func lonelySlash(p string) bool {
	for seg := range strings.SplitSeq(p, "/") {
		if strings.EqualFold(seg, "%2F") {
			return true
		}
	}
	return false
}

// FuzzPattern parses anything. An error points into the text; a pattern that
// parses matches at least the request that spells it out.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{
		"", "/", "GET /", "*.a.com/", "{shop}.myshopify.com/admin/", "a.com:443/{x}/{y...}", "[::1]:80/{$}",
		"HEAD\tB.example.:08080/a%2Fb/%2e%2e/%", "127.0.0.1/{x}/%2F/", "*.{a}.{b}/{c}", "https://a.com/", "{a.com", "/a{", "*./",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			digits, _, ok := strings.Cut(strings.TrimPrefix(err.Error(), "at offset "), ": ")
			off, numErr := strconv.Atoi(digits)
			require.True(t, ok && numErr == nil && 0 <= off && off <= len(text), "%q: %v", text, err)
			return
		}
		r := exampleOf(p)
		require.Equal(t, []int32{0}, NewIndex([]*Pattern{p}).Match(nil, r), "%q and %s", text, r.URL)
		for _, name := range p.names {
			require.Equal(t, "w", p.Bind(r).PathValue(name), "%q: %s", text, name)
		}
		own, _ := p.Group()
		require.Equal(t, []string{own}, Groups([]*Pattern{p}))
	})
}

// exampleOf returns the request that p spells out, with "w" in each wildcard.
func exampleOf(p *Pattern) *http.Request {
	host := "any.example"
	for i, l := range p.labels {
		switch {
		case l.wild && i == 0:
			host = "w"
		case l.wild:
			host = "w." + host
		case i == 0:
			host = l.text
		default:
			host = l.text + "." + host
		}
	}
	if p.deep {
		host = "more." + host
	}
	if p.port != "" {
		host += ":" + p.port
	}
	var raw strings.Builder
	for _, s := range p.segs {
		raw.WriteByte('/')
		if s.wild {
			raw.WriteByte('w')
			continue
		}
		for i := range len(s.text) {
			fmt.Fprintf(&raw, "%%%02X", s.text[i])
		}
	}
	switch {
	case p.rest != "":
		raw.WriteString("/w")
	case p.end != endHere:
		raw.WriteByte('/')
	}
	return &http.Request{Method: p.method, URL: &url.URL{Host: host, Path: plain(raw.String()), RawPath: raw.String()}}
}

// BenchmarkMatch shows that the size of a table hardly matters: 10,000
// patterns against 1 of the same shape. It says nothing of tables in which
// many patterns match one request: those are paid for one by one.
func BenchmarkMatch(b *testing.B) {
	for _, shape := range []struct {
		name    string
		method  string
		pattern func(i int) string
		url     string
		also    []string // patterns that match too
		want    int
	}{
		{"paths", "GET", func(i int) string { return fmt.Sprintf("api.example.com/v1/resource%d/items", i) },
			"https://api.example.com/v1/resource0/items", nil, 1},
		{"hosts", "GET", func(i int) string { return fmt.Sprintf("api%d.example.com/v1/", i) },
			"https://api0.example.com/v1/resource/items", nil, 1},
		{"wildcards", "GET", func(i int) string {
			return fmt.Sprintf("GET {shop}.example%d.com/{version}/resource%d/{id}", i%100, i)
		}, "https://acme.example0.com/v1/resource0/42", nil, 1},
		{"overlapping", "POST", func(i int) string { return fmt.Sprintf("POST *.example.com/{a}/{b}/resource%d/{rest...}", i) },
			"https://api.example.com/v1/x/resource0/y", []string{"", "*.example.com/", "api.{name}.com/{a}/"}, 4},
	} {
		for _, n := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				texts := slices.Clone(shape.also)
				for i := range n {
					texts = append(texts, shape.pattern(i))
				}
				x := NewIndex(mustParse(b, texts...))
				r := request(b, shape.method, shape.url)
				dst := x.Match(nil, r)
				require.Len(b, dst, shape.want, "premise: so many patterns match")
				b.ReportAllocs()
				for b.Loop() {
					dst = x.Match(dst[:0], r)
				}
				require.Len(b, dst, shape.want)
			})
		}
	}
}

// BenchmarkMatchOddSpelling is a request whose host, path and port must be
// normalised on the way.
func BenchmarkMatchOddSpelling(b *testing.B) {
	x := NewIndex(mustParse(b, "api.example.com:443/v1/a%2Fb"))
	r := request(b, http.MethodGet, "https://API.Example.Com.//v0/../v1/./a%2fb")
	dst := x.Match(nil, r)
	require.Len(b, dst, 1, "premise: the pattern matches")
	b.ReportAllocs()
	for b.Loop() {
		dst = x.Match(dst[:0], r)
	}
}

// BenchmarkMatchNothing is a request that no policy knows: it should pass at
// hardly any cost.
func BenchmarkMatchNothing(b *testing.B) {
	var texts []string
	for i := range 10_000 {
		texts = append(texts, fmt.Sprintf("api%d.example.com/", i))
	}
	x := NewIndex(mustParse(b, texts...))
	r := request(b, http.MethodGet, "https://elsewhere.org/v1/resource")
	dst := x.Match(nil, r)
	require.Empty(b, dst, "premise: nothing matches")
	b.ReportAllocs()
	for b.Loop() {
		dst = x.Match(dst[:0], r)
	}
}

// BenchmarkBind is the price of a wildcard with a name.
func BenchmarkBind(b *testing.B) {
	p := mustParse(b, "{shop}.myshopify.com/admin/")[0]
	r := request(b, http.MethodGet, "https://acme.myshopify.com/admin/api")
	require.Equal(b, "acme", p.Bind(r).PathValue("shop"), "premise: there is a value")
	b.ReportAllocs()
	for b.Loop() {
		p.Bind(r)
	}
}
