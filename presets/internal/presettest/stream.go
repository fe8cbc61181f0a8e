package presettest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// LookedAt sends a request whose answer has an endless body: begin, and then spaces. The
// answer states no length, unless header has a Content-Length. LookedAt returns how many
// bytes of the body were read when the caller got the answer.
func LookedAt(t *testing.T, policies []throttle.Policy, line string, status int, header Header, begin string) int {
	t.Helper()
	body := &endless{Reader: io.MultiReader(strings.NewReader(begin), spaces{})}
	transport, err := throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   memstore.New(), Policies: policies,
		Base: RoundTripper(func(r *http.Request) (*http.Response, error) {
			resp := &http.Response{
				StatusCode: status, Header: make(http.Header), Request: r,
				Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: body, ContentLength: -1,
			}

			header.fill(resp.Header)
			if n, err := strconv.ParseInt(header["Content-Length"], 10, 64); err == nil {
				resp.ContentLength = n
			}

			return resp, nil
		}),
	})

	require.NoError(t, err)
	resp, err := transport.RoundTrip(Request(t, line))
	require.NoError(t, err)

	// Note the bytes before the caller reads on.
	read := body.read
	head := make([]byte, len(begin))
	_, err = io.ReadFull(resp.Body, head)
	require.NoError(t, err)
	require.Equal(t, begin, string(head), "the body must come through untouched")
	require.NoError(t, resp.Body.Close())

	return read
}

// A RoundTripper is an upstream made of a function.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An endless body counts the bytes that are read.
type endless struct {
	io.Reader
	read int
}

func (b *endless) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *endless) Close() error { return nil }

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// CutStreams has the Meter of a policy read a stream: the whole stream in two pieces, the stream cut off,
// both at each of its bytes, and the stream byte by byte. The whole stream must have the cost want. A cut
// stream must have it from some byte on, and no cost before.
func CutStreams(t *testing.T, policies []throttle.Policy, policy string, r *http.Request, stream string, want int) {
	t.Helper()

	// cost returns the cost of a stream that comes in pieces.
	cost := func(pieces ...string) int {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r}
		for i := range policies {
			if policies[i].Name != policy {
				continue
			}

			m := policies[i].Meter(resp)
			for _, piece := range pieces {
				n, err := m.Write([]byte(piece))
				require.NoError(t, err)
				require.Equal(t, len(piece), n)
			}

			return m.Cost()
		}

		t.Fatalf("no policy %q", policy)
		return 0
	}

	told := false
	for at := range len(stream) + 1 {
		require.Equal(t, want, cost(stream[:at], stream[at:]), "in two pieces, at %d", at)

		// A cut stream may tell nothing, but never a wrong number.
		switch n := cost(stream[:at]); {
		case n == want:
			told = true
		case told || n >= 0:
			require.Failf(t, "another cost", "cut at %d: %d", at, n)
		}
	}

	require.True(t, told)
	require.Equal(t, want, cost(strings.SplitAfter(stream, "")...), "byte by byte")
}
