package retry_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/retry"
)

// stream hides what a reader is, so that net/http knows no length and no way to
// read it again.
func stream(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

// TestBodiesArriveWhole at every attempt, however they were given.
func TestBodiesArriveWhole(t *testing.T) {
	var opened int
	for _, c := range []struct {
		name string
		body any
	}{
		{"bytes", []byte("payload")},
		{"buffer", bytes.NewBufferString("payload")},
		{"stream", stream("payload")}, // which go-retryablehttp reads into memory
		{"function", retryablehttp.ReaderFunc(func() (io.Reader, error) {
			opened++
			return stream("payload"), nil
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, ""), answer(429, ""), answer(200, ""))
				require.Equal(t, 200, status(t, retry.NewClient(newTransport(t, up, open)), request(t, http.MethodPost, home, c.body)))
				require.Equal(t, []string{"POST payload", "POST payload", "POST payload"}, up.brought())
			})
		})
	}
	require.Equal(t, 4, opened, "once for its length, and once for each attempt")
}

// TestBodiesOfTheStandardClient: a body with a GetBody, as http.NewRequest gives
// to the usual readers, is sent again; a stream is not.
func TestBodiesOfTheStandardClient(t *testing.T) {
	for _, c := range []struct {
		name string
		body io.Reader
		want []string
	}{
		{"GetBody", strings.NewReader("payload"), []string{"POST payload", "POST payload"}},
		{"stream", stream("payload"), []string{"POST payload"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(429, ""), answer(200, ""))
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, home, c.body)
				require.NoError(t, err)
				resp, err := retry.NewClient(newTransport(t, up, open)).StandardClient().Do(r)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, c.want, up.brought())
			})
		})
	}
}

// TestPitfall_AnEmptyPOST: a request made around a stream by hand is sent again
// by the default client when there is nothing left to send, and that is a
// success. Ours returns the refusal, or the error.
func TestPitfall_AnEmptyPOST(t *testing.T) {
	for _, first := range []base{answer(429, ""), failing(unreachable)} {
		synctest.Test(t, func(t *testing.T) {
			byHand := func() *retryablehttp.Request {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, home, stream("payload"))
				require.NoError(t, err)
				return &retryablehttp.Request{Request: r}
			}
			up := newUpstream(first, answer(200, ""))
			require.Equal(t, 200, status(t, usual(newTransport(t, up, open)), byHand()))
			require.Equal(t, []string{"POST payload", "POST "}, up.brought())

			up = newUpstream(first, answer(200, ""))
			resp, err := retry.NewClient(newTransport(t, up, open)).Do(byHand())
			if err == nil {
				require.NoError(t, resp.Body.Close())
				require.Equal(t, 429, resp.StatusCode)
			} else {
				require.ErrorIs(t, err, unreachable)
			}
			require.Equal(t, []string{"POST payload"}, up.brought())
		})
	}
}

// A longBody is a gigabyte that counts what is read of it.
type longBody struct {
	left   int64
	read   atomic.Int64
	closed atomic.Int32
}

func (b *longBody) Read(p []byte) (int, error) {
	n := min(int64(len(p)), b.left-b.read.Load())
	if n == 0 {
		return 0, io.EOF
	}
	b.read.Add(n)
	return int(n), nil
}

func (b *longBody) Close() error {
	b.closed.Add(1)
	return nil
}

// long answers with 1 GB.
func long(status int) (base, *longBody) {
	body := &longBody{left: 1 << 30}
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: body, ContentLength: body.left}, nil
	}, body
}

// TestARefusedBodyIsNotReadToItsEnd, even if a classifier has looked at its beginning.
func TestARefusedBodyIsNotReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, body := long(429)
		up := newUpstream(first, answer(200, ""))
		require.Equal(t, 200, status(t, retry.NewClient(newTransport(t, up, recognised, open)), get(t)))
		require.EqualValues(t, 4096, body.read.Load(), "what go-retryablehttp reads, to keep the connection")
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestTheLastAnswer is the caller's, unread and open. The default client closes
// it and returns an error that says nothing of it.
func TestTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last, body := long(429)
		up := newUpstream(answer(429, ""), answer(429, ""), answer(429, ""), answer(429, ""), last)
		resp, err := usual(newTransport(t, up)).Do(get(t))
		require.EqualError(t, err, "GET http://api.example.com/ giving up after 5 attempt(s)")
		require.Nil(t, resp)
		require.EqualValues(t, 1, body.closed.Load())

		last, body = long(429)
		up = newUpstream(answer(429, ""), answer(429, ""), answer(429, ""), answer(429, ""), last)
		resp, err = retry.NewClient(newTransport(t, up, open)).Do(get(t))
		require.NoError(t, err)
		require.Len(t, up.seen(), 5)
		require.Equal(t, 429, resp.StatusCode)
		require.Zero(t, body.read.Load())
		require.Zero(t, body.closed.Load())
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestAnAnswerThatCameIsTheCallers, although the context has ended meanwhile.
func TestAnAnswerThatCameIsTheCallers(t *testing.T) {
	for _, code := range []int{200, 429, 500} {
		ctx, cancel := context.WithCancel(t.Context())
		up := newUpstream(base(func(r *http.Request) (*http.Response, error) {
			cancel()
			return answer(code, "")(r)
		}))
		require.Equal(t, code, status(t, retry.NewClient(newTransport(t, up, open)), get(t).WithContext(ctx)))
		require.Len(t, up.seen(), 1)
	}
}
