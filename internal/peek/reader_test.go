package peek_test

import (
	"io"
	"net/http"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/peek"
)

func TestPeekReader(t *testing.T) {
	for _, c := range []struct {
		name string
		max  int64
		want string
	}{
		{"less than the body", 5, "hello"},
		{"the body", 11, "hello world"},
		{"more than the body", 1 << 50, "hello world"},
		{"nothing", 0, ""},
		{"negative", -1, ""},
	} {
		for _, piece := range []int{0, 1, 3} {
			t.Run(c.name, func(t *testing.T) {
				body := &countedBody{text: "hello world", piece: piece}
				resp := &http.Response{StatusCode: 200, Body: body}
				require.NoError(t, iotest.TestReader(peek.Reader(resp, c.max), []byte(c.want)))
				require.Len(t, c.want, body.read)
				requirePeek(t, resp, c.max, c.want)
				all, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "hello world", string(all))
			})
		}
	}
}

// TestPeekReaderWaitsForNothing: each read of the reader is at most one of the
// body.
func TestPeekReaderWaitsForNothing(t *testing.T) {
	body := &countedBody{text: "hello world", piece: 3}
	resp := &http.Response{StatusCode: 200, Body: body}
	r := peek.Reader(resp, 100)
	p := make([]byte, 100)
	for i, want := range []string{"hel", "lo ", "wor"} {
		n, err := r.Read(p)
		require.NoError(t, err)
		require.Equal(t, want, string(p[:n]))
		require.Equal(t, i+1, body.reads)
	}
	n, err := r.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, 3, body.reads)

	again := peek.Reader(resp, 100)
	n, err = again.Read(p)
	require.NoError(t, err)
	require.Equal(t, "hello wor", string(p[:n]), "what was read is used again")
	require.Equal(t, 3, body.reads)
}

func TestPeekReaderKeepsAnErrorForTheReader(t *testing.T) {
	text := &countedBody{text: "hello", err: errCut}
	for _, r := range []io.Reader{text, iotest.DataErrReader(&countedBody{text: "hello", err: errCut})} {
		resp := &http.Response{StatusCode: 200, Body: struct {
			io.Reader
			io.Closer
		}{r, text}}
		for range 2 {
			got, err := io.ReadAll(peek.Reader(resp, 100))
			require.Equal(t, errCut, err)
			require.Equal(t, "hello", string(got))
		}
		got, err := io.ReadAll(resp.Body)
		require.Equal(t, errCut, err)
		require.Equal(t, "hello", string(got))
	}
}

func TestPeekReaderWithNothingToSee(t *testing.T) {
	for _, resp := range []*http.Response{
		{StatusCode: 200},
		{StatusCode: 200, Body: http.NoBody},
		{StatusCode: 101, Body: &countedBody{text: "hello"}},
	} {
		body := resp.Body
		got, err := io.ReadAll(peek.Reader(resp, 100))
		require.NoError(t, err)
		require.Empty(t, got)
		require.Equal(t, body, resp.Body)
	}
}
