package match

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

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
