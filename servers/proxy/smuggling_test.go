package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSmuggling sends what two parsers may read in two ways. The upstream gets what the proxy has
// read, in one form, or nothing; and what a caller hides in a request is no request.
func TestSmuggling(t *testing.T) {
	got := make(chan string, 10)
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			w.Header().Set("X-End", "1")
			return
		}
		body, _ := io.ReadAll(r.Body)
		h := r.Header.Clone()
		for _, name := range []string{"Content-Length", "Via", "Accept-Encoding"} {
			h.Del(name)
		}
		got <- fmt.Sprintf("%s %s %s %q %v %d", r.Method, r.Host, r.RequestURI, body, h, r.ContentLength)
	}, nil, rows...)
	const to, hidden = "POST /api.example.com/a HTTP/1.1\nHost: localhost\n", "GET /api.example.com/hidden HTTP/1.1\nHost: localhost\n\n"
	for name, c := range map[string]struct {
		send     string
		statuses []int
		came     []string
	}{
		"two lengths":                {to + "Content-Length: 3\nContent-Length: 4\n\nabcd", []int{400}, nil},
		"two lengths in one field":   {to + "Content-Length: 3, 4\n\nabcd", []int{400}, nil},
		"one length, twice":          {to + "Content-Length: 3\nContent-Length: 3\n\nabc", []int{200}, []string{`POST api.example.com /a "abc" map[] 3`}},
		"a length with a sign":       {to + "Content-Length: +3\n\nabc", []int{400}, nil},
		"a negative length":          {to + "Content-Length: -1\n\nabc", []int{400}, nil},
		"a length in hexadecimal":    {to + "Content-Length: 0x3\n\nabc", []int{400}, nil},
		"an endless length":          {to + "Content-Length: 99999999999999999999\n\nabc", []int{400}, nil},
		"no length":                  {to + "Content-Length: \n\n", []int{400}, nil},
		"chunks beside a length":     {to + "Content-Length: 4\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", []int{200}, []string{`POST api.example.com /a "abc" map[] -1`}},
		"requests behind chunks":     {to + "Content-Length: 60\nTransfer-Encoding: chunked\n\n0\n\n" + hidden, []int{200, 200}, []string{`POST api.example.com /a "" map[] -1`, `GET api.example.com /hidden "" map[] 0`}},
		"an unknown encoding":        {to + "Transfer-Encoding: xchunked\n\n3\nabc\n0\n\n", []int{501}, nil},
		"two encodings":              {to + "Transfer-Encoding: gzip, chunked\n\n3\nabc\n0\n\n", []int{501}, nil},
		"encodings in two fields":    {to + "Transfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n", []int{501}, nil},
		"a vertical tab":             {to + "Transfer-Encoding:\vchunked\n\n0\n\n", []int{400}, nil},
		"a space before the colon":   {to + "Transfer-Encoding : chunked\n\n0\n\n", []int{400}, nil},
		"extensions of chunks":       {to + "Transfer-Encoding: chunked\n\n3;a=b;c=\"d\"\nabc\n0;x\n\n", []int{200}, []string{`POST api.example.com /a "abc" map[] -1`}},
		"a chunk that lies":          {to + "Transfer-Encoding: chunked\n\n2\nabc\n0\n\n", []int{400}, nil},
		"a chunk with a sign":        {to + "Transfer-Encoding: chunked\n\n+3\nabc\n0\n\n", []int{400}, nil},
		"a chunk in odd digits":      {to + "Transfer-Encoding: chunked\n\n0x3\nabc\n0\n\n", []int{400}, nil},
		"an endless chunk":           {to + "Transfer-Encoding: chunked\n\nfffffffffffffffff\nabc\n0\n\n", []int{400}, nil},
		"a folded line":              {to + "X-Fold: a\n b\nContent-Length: 0\n\n", []int{200}, []string{`POST api.example.com /a "" map[X-Fold:[a b]] 0`}},
		"a folded first line":        {"POST /api.example.com/a HTTP/1.1\n X: y\nHost: localhost\n\n", []int{400}, nil},
		"a length in a folded line":  {to + "X: a\n Content-Length: 3\n\n", []int{200}, []string{`POST api.example.com /a "" map[X:[a Content-Length: 3]] 0`}},
		"a NUL in a value":           {to + "X: a\x00b\nContent-Length: 0\n\n", []int{400}, nil},
		"a NUL in a name":            {to + "X\x00: a\nContent-Length: 0\n\n", []int{400}, nil},
		"a NUL in a path":            {"GET /api.example.com/a\x00b HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"a control byte in a path":   {"GET /api.example.com/a\x01b HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"DEL in a path":              {"GET /api.example.com/a\x7fb HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"a space in a path":          {"GET /api.example.com/a b HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"a bare CR in a value":       {to + "X: a\rContent-Length: 3\nContent-Length: 0\n\n", []int{400}, nil},
		"an escaped line end":        {"GET /api.example.com/a%0d%0aX:%20y HTTP/1.1\nHost: localhost\n\n", []int{200}, []string{`GET api.example.com /a%0d%0aX:%20y "" map[] 0`}},
		"two hosts":                  {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nHost: api.example.com\n\n", []int{400}, nil},
		"no host":                    {"GET /api.example.com/a HTTP/1.1\n\n", []int{400}, nil},
		"a host and a path":          {"GET /api.example.com/a HTTP/1.1\nHost: localhost/else\n\n", []int{400}, nil},
		"a user in the host":         {"GET /a HTTP/1.1\nHost: u@api.example.com\n\n", []int{400}, nil},
		"another host in the target": {"GET http://api.example.com/a HTTP/1.1\nHost: odd.example.com\n\n", []int{200}, []string{`GET api.example.com /a "" map[] 0`}},
		"a body of GET":              {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nContent-Length: " + fmt.Sprint(len(crlf(hidden))) + "\n\n" + hidden, []int{200}, []string{fmt.Sprintf("GET api.example.com /a %q map[] %d", crlf(hidden), len(crlf(hidden)))}},
		"a body behind no length":    {to + "\n" + hidden, []int{200, 200}, []string{`POST api.example.com /a "" map[] 0`, `GET api.example.com /hidden "" map[] 0`}},
		"a refused body":             {"POST /else.example.com/a HTTP/1.1\nHost: localhost\nContent-Length: " + fmt.Sprint(len(crlf(hidden))) + "\n\n" + hidden, []int{403}, nil},
		"refused chunks":             {"POST /else.example.com/a HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n0\n\n" + hidden, []int{403}, nil},
		"fields of one connection":   {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nConnection: X-Hop, x-Two\nX-Hop: 1\nX-two: 2\nKeep-Alive: 5\nTe: gzip\nX-End: 3\nUpgrade: h2c\n\n", []int{200}, []string{`GET api.example.com /a "" map[X-End:[3]] 0`}},
		"a host of one connection":   {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nConnection: Host, Via, Content-Length, close\n\n", []int{200}, []string{`GET api.example.com /a "" map[] 0`}},
		"what is for the proxy":      {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nProxy-Authorization: Basic eA==\nProxy-Connection: keep-alive\nProxy-Anything: 1\nProxy-Authenticate: x\nAuthorization: mine\n\n", []int{200}, []string{`GET api.example.com /a "" map[Authorization:[mine]] 0`}},
		"what proxies add":           {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nForwarded: for=x\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Host: evil\nX-Forwarded-Proto: http\n\n", []int{200}, []string{`GET api.example.com /a "" map[] 0`}},
		"a lower-case method":        {"get /api.example.com/a HTTP/1.1\nHost: localhost\n\n", []int{200}, []string{`get api.example.com /a "" map[] 0`}},
		"no method":                  {" /api.example.com/a HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"an old version":             {"GET /api.example.com/a HTTP/0.9\nHost: localhost\n\n", []int{505}, nil},
		"a new version":              {"GET /api.example.com/a HTTP/2.0\nHost: localhost\n\n", []int{505}, nil},
		"a trailer that is a length": {to + "Transfer-Encoding: chunked\nTrailer: Content-Length\n\n0\nContent-Length: 5\n\n", []int{400}, nil},
	} {
		w := s.dial()
		w.send(c.send)
		statuses := w.statuses()
		require.Equal(t, c.statuses, statuses, name)
		require.Len(t, got, len(c.came), name)
		for _, want := range c.came {
			require.Equal(t, want, <-got, name)
		}
	}
}

// statuses reads answers until the connection ends, which it asks for when the first is there.
// It leaves out the answer to that.
func (w *wire) statuses() (all []int) {
	for {
		resp, err := http.ReadResponse(w.from, nil)
		if err != nil {
			return all
		}
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(w, err)
		all = append(all, resp.StatusCode)
		switch {
		case resp.Header.Get("X-End") != "":
			return all[:len(all)-1]
		case len(all) == 1 && !resp.Close:
			w.send("GET /api.example.com/end HTTP/1.1\nHost: localhost\n\n")
		}
	}
}

// crlf ends lines as HTTP does.
func crlf(lines string) string { return strings.ReplaceAll(lines, "\n", "\r\n") }
