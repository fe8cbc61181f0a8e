package peek_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/peek"
)

var errCut = errors.New("connection cut")

// A countedBody yields text in pieces and then err, and counts what is done to
// it.
type countedBody struct {
	text  string
	piece int   // bytes per read at most; 0: any number
	err   error // after text; nil: io.EOF

	read, reads, closed int
}

func (b *countedBody) Read(p []byte) (int, error) {
	b.reads++
	if b.closed > 0 {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(b.text) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		return 0, io.EOF
	}
	if b.piece > 0 {
		p = p[:min(b.piece, len(p))]
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	b.read += n
	return n, nil
}

func (b *countedBody) Close() error {
	b.closed++
	return nil
}

// peeked makes a response of a body and peeks at it.
func peeked(t *testing.T, body io.ReadCloser, max int64, want string) *http.Response {
	t.Helper()
	resp := &http.Response{StatusCode: 200, Header: http.Header{}, Body: body}
	requirePeek(t, resp, max, want)
	return resp
}

func requirePeek(t *testing.T, resp *http.Response, max int64, want string) {
	t.Helper()
	got, err := peek.Body(resp, max)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestPeekBody(t *testing.T) {
	for _, c := range []struct {
		name string
		max  int64
		want string
		read int // bytes that the peek takes from the body
	}{
		{"less than the body", 5, "hello", 5},
		{"one less", 10, "hello worl", 10},
		{"the body", 11, "hello world", 11},
		{"more than the body", 12, "hello world", 11},
		{"far more", 1 << 50, "hello world", 11},
		{"nothing", 0, "", 0},
		{"negative", -1, "", 0},
	} {
		for _, piece := range []int{0, 1, 3} {
			t.Run(c.name, func(t *testing.T) {
				body := &countedBody{text: "hello world", piece: piece}
				resp := peeked(t, body, c.max, c.want)
				require.Equal(t, c.read, body.read)

				all, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "hello world", string(all))
				n, err := resp.Body.Read(make([]byte, 1))
				require.Zero(t, n)
				require.Equal(t, io.EOF, err, "the end stays the end")
			})
		}
	}
}

func TestPeekBodyLeavesTheAnswerAlone(t *testing.T) {
	resp := &http.Response{
		StatusCode:    200,
		Header:        http.Header{"Content-Length": {"5"}, "X": {"y"}},
		ContentLength: 5,
		Body:          &countedBody{text: "hello"},
	}
	before := *resp
	before.Header = resp.Header.Clone()
	requirePeek(t, resp, 5, "hello")
	before.Body = resp.Body
	require.Equal(t, before, *resp)
}

func TestPeekBodyWithNothingToSee(t *testing.T) {
	connection := struct {
		*countedBody
		io.Writer
	}{&countedBody{text: "hello"}, io.Discard}
	for _, c := range []struct {
		name string
		resp http.Response
	}{
		{"no body", http.Response{StatusCode: 200}},
		{"http.NoBody", http.Response{StatusCode: 200, Body: http.NoBody}},
		{"switching protocols", http.Response{StatusCode: 101, Body: connection}},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.resp.Body
			got, err := peek.Body(&c.resp, 5)
			require.NoError(t, err)
			require.Nil(t, got)
			require.Equal(t, body, c.resp.Body, "the body is the same, and a writer stays one")
		})
	}
	require.Zero(t, connection.reads)
}

func TestPeekBodyOfADecodedAnswer(t *testing.T) {
	for _, resp := range []*http.Response{
		{StatusCode: 200, Uncompressed: true},
		{StatusCode: 200, Uncompressed: true, Header: http.Header{"Content-Encoding": {"br"}}},
		{StatusCode: 200, Header: http.Header{"Content-Encoding": {"Identity"}}},
	} {
		resp.Body = &countedBody{text: "hello"}
		requirePeek(t, resp, 5, "hello")
	}
}

func TestPeekBodyAgain(t *testing.T) {
	body := &countedBody{text: "hello world"}
	resp := peeked(t, body, 5, "hello")
	wrapped := resp.Body
	requirePeek(t, resp, 3, "hel")
	requirePeek(t, resp, 5, "hello")
	require.Equal(t, 5, body.read, "what was read is used again")
	requirePeek(t, resp, 8, "hello wo")
	require.Equal(t, 8, body.read, "and only what is missing is read")
	require.Same(t, wrapped, resp.Body, "one wrapper is enough")
	requirePeek(t, resp, 100, "hello world")
	reads := body.reads
	requirePeek(t, resp, 200, "hello world")
	require.Equal(t, reads, body.reads, "the end is known")

	all, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello world", string(all))
}

func TestPeekBodySeesWhatTheReaderWillSee(t *testing.T) {
	resp := peeked(t, &countedBody{text: "hello world"}, 8, "hello wo")
	_, err := io.ReadFull(resp.Body, make([]byte, 6))
	require.NoError(t, err)
	requirePeek(t, resp, 3, "wor")
	all, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "world", string(all))
}

func TestPeekBodyCanBeAppendedTo(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Body: &countedBody{text: "hello world"}}
	_, err := peek.Body(resp, 11)
	require.NoError(t, err)
	got, err := peek.Body(resp, 5)
	require.NoError(t, err)
	_ = append(got, "!!!!!!"...)
	all, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello world", string(all))
}

func TestPeekBodyCloses(t *testing.T) {
	body := &countedBody{text: "hello world"}
	resp := peeked(t, body, 5, "hello")
	requirePeek(t, resp, 8, "hello wo")
	require.Zero(t, body.closed)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 1, body.closed)

	_, err := resp.Body.Read(make([]byte, 1))
	require.Equal(t, http.ErrBodyReadAfterClose, err, "nothing is kept for after the close")
}

func TestPeekBodyKeepsAnErrorForTheReader(t *testing.T) {
	resp := peeked(t, &countedBody{text: "hello", err: errCut}, 100, "hello")
	requirePeek(t, resp, 100, "hello")
	all, err := io.ReadAll(resp.Body)
	require.Equal(t, errCut, err)
	require.Equal(t, "hello", string(all))
}

func TestPeekBodyOfNothingButAnError(t *testing.T) {
	body := &countedBody{err: errCut}
	resp := &http.Response{StatusCode: 200, Body: body}
	for range 2 {
		got, err := peek.Body(resp, 100)
		require.Equal(t, errCut, err)
		require.Nil(t, got)
	}
	require.Equal(t, 1, body.reads)
	n, err := resp.Body.Read(nil)
	require.NoError(t, err, "an empty read does not use the error up")
	require.Zero(t, n)
	_, err = resp.Body.Read(make([]byte, 1))
	require.Equal(t, errCut, err)
}

// An endlessBody is a gigabyte and counts how much of it was read.
type endlessBody struct{ read int64 }

func (b *endlessBody) Read(p []byte) (int, error) {
	const size = 1 << 30
	n := min(int64(len(p)), size-b.read)
	b.read += n
	if n == 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

func (b *endlessBody) Close() error { return nil }

func TestPeekBodyNeverReadsBeyondMax(t *testing.T) {
	body := &endlessBody{}
	resp := &http.Response{StatusCode: 200, Body: body}
	for _, n := range []int64{1, 511, 512, 513, 4096, 65536, 1000} {
		already := body.read
		got, err := peek.Body(resp, n)
		require.NoError(t, err)
		require.Len(t, got, int(n))
		require.Equal(t, max(already, n), body.read)
	}
}

// TestPeekBodyCloseDuringRead is for the race detector: a transport may close a
// body that is being read.
func TestPeekBodyCloseDuringRead(t *testing.T) {
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("hello")) }()
	resp := peeked(t, r, 5, "hello")
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(resp.Body)
		read <- err
	}()
	require.NoError(t, resp.Body.Close())
	require.ErrorIs(t, <-read, io.ErrClosedPipe)
}

// TestKept: two types are kept beside a body, each as it is, and no third.
func TestKept(t *testing.T) {
	resp := peeked(t, &countedBody{text: "body"}, 1, "b")
	number, _ := peek.Kept[int](resp)
	text, _ := peek.Kept[string](resp)
	*number, *text = 7, "seven"

	again, _ := peek.Kept[string](resp)
	require.Same(t, text, again)
	sameNumber, _ := peek.Kept[int](resp)
	require.Same(t, number, sameNumber)
	third, body := peek.Kept[bool](resp)
	require.Nil(t, third)
	require.Equal(t, "b", string(body.From(0, 9)), "what was read is there for all")
}
