package peek_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/leaks"
	"github.com/fleetthrottle/throttle/internal/peek"
)

var errCut = errors.New("connection cut")

// A countedBody yields text in pieces and then err, and counts what is done to
// it.
type countedBody struct {
	text  string
	piece int   // bytes per read at most. Zero means any number.
	err   error // after text. With nil it is io.EOF.

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

// An oddBody reads as its function does.
type oddBody func([]byte) (int, error)

func (b oddBody) Read(p []byte) (int, error) { return b(p) }
func (b oddBody) Close() error               { return nil }

// TestPeekBodyOfABodyThatPanics: the panic reaches the body's reader, which may
// recover from it, as if nobody had looked.
func TestPeekBodyOfABodyThatPanics(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Body: oddBody(func([]byte) (int, error) { panic(http.ErrAbortHandler) })}
	got, err := peek.Body(resp, 8)
	require.EqualError(t, err, "throttle: the answer's body panicked")
	require.Empty(t, got)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { _, _ = io.ReadAll(resp.Body) })
	require.NoError(t, resp.Body.Close())
}

// TestPeekBodyOfABodyThatBreaksItsContract ends at once, also where no time
// passes.
func TestPeekBodyOfABodyThatBreaksItsContract(t *testing.T) {
	for _, c := range []struct {
		name string
		read oddBody
		want string // "": the look finds nothing
	}{
		{"more than there is room for", func(p []byte) (int, error) { return len(p) + 1, nil },
			"throttle: the answer's body returned an impossible count from Read"},
		{"less than nothing", func([]byte) (int, error) { return -1, io.EOF },
			"throttle: the answer's body returned an impossible count from Read"},
		{"nothing forever", func([]byte) (int, error) { return 0, nil }, ""},
		{"gone", func([]byte) (int, error) { runtime.Goexit(); return 0, nil }, "throttle: the answer's body panicked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resp := &http.Response{StatusCode: 200, Body: c.read}
				got, err := peek.Body(resp, 8)
				require.Empty(t, got)
				if c.want == "" {
					require.NoError(t, err)
					_, err = peek.Reader(resp, 8).Read(make([]byte, 1))
					require.Equal(t, io.ErrNoProgress, err)
					n, err := resp.Body.Read(make([]byte, 1))
					require.Zero(t, n)
					require.NoError(t, err)
					return
				}
				require.EqualError(t, err, c.want)
				_, err = io.ReadAll(resp.Body)
				require.EqualError(t, err, c.want)
			})
		})
	}
}

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

// stalled returns an answer whose body stops after its first words.
func stalled() (*http.Response, *io.PipeWriter) {
	r, w := io.Pipe()
	go w.Write([]byte("first"))
	return &http.Response{StatusCode: 429, Body: r}, w
}

// TestP13_ABodyThatStalls is looked at for a second, by all together. Its reader gets
// every byte, also those that were late for the looks.
func TestP13_ABodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, w := stalled()
		began := time.Now()
		for _, max := range []int64{100, 3, 1000} {
			head, err := peek.Body(resp, max)
			require.NoError(t, err)
			require.Equal(t, "first"[:min(max, 5)], string(head))
			require.Equal(t, time.Second, time.Since(began))
		}
		head, err := io.ReadAll(peek.Reader(resp, 100))
		require.ErrorIs(t, err, io.ErrNoProgress)
		require.Equal(t, "first", string(head))
		require.Equal(t, time.Second, time.Since(began))

		go func() {
			time.Sleep(time.Hour)
			w.Write([]byte(" and last"))
			w.Close()
		}()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "first and last", string(body))
		require.NoError(t, resp.Body.Close())
	})
}

// TestP13_ABodyThatStallsIsClosed ends the read that is on its way.
func TestP13_ABodyThatStallsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which sees that no goroutine stays
		resp, _ := stalled()
		_, err := peek.Body(resp, 100)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrClosedPipe)
		head, err := peek.Body(resp, 100)
		require.NoError(t, err)
		require.Empty(t, head)
	})
}

// TestP13_ABodyThatHasNotBegun is waited for for a tenth of a second by those who only ask how it
// begins, all together, and for a second by the others.
func TestP13_ABodyThatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		resp := &http.Response{StatusCode: 200, Body: r}
		began := time.Now()
		for range 3 {
			require.Empty(t, peek.Begins(resp))
			require.Equal(t, 100*time.Millisecond, time.Since(began))
		}

		go w.Write([]byte("first"))
		synctest.Wait()
		require.Equal(t, "first", string(peek.Begins(resp)), "what has come late is seen")
		head, err := peek.Body(resp, 10)
		require.NoError(t, err)
		require.Equal(t, "first", string(head))
		require.Equal(t, time.Second, time.Since(began))

		go w.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "first", string(body))
		require.Empty(t, peek.Begins(&http.Response{StatusCode: 200, Body: http.NoBody}))
	})
}

// TestP13_ACompressedBodyThatHasNotBegun is waited for as a plain body: who asked in vain how it begins takes nothing from
// those who wait for longer, or come later.
func TestP13_ACompressedBodyThatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		resp, began := coded("gzip", r), time.Now()
		for range 3 {
			require.Empty(t, peek.Begins(resp))
			require.Equal(t, 100*time.Millisecond, time.Since(began))
		}

		text := packed(t, "hello", gzipped)
		go func() {
			time.Sleep(200 * time.Millisecond)
			_, _ = io.WriteString(w, text)
			_ = w.Close()
		}()
		head, err := peek.Body(resp, 10)
		require.NoError(t, err)
		require.Equal(t, "hello", string(head))
		require.Equal(t, "hello", string(peek.Begins(resp)))
		require.Equal(t, 300*time.Millisecond, time.Since(began))
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, text, string(body))
	})
}

// TestMain fails the run if a goroutine outlives the tests (P15).
func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

// packed returns a text in a coding.
func packed(t testing.TB, text string, open func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var b bytes.Buffer
	w := open(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
func zlibbed(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }
func deflated(w io.Writer) io.WriteCloser {
	return must(flate.NewWriter(w, flate.DefaultCompression))
}

// codings are those that can be looked at.
var codings = []struct {
	name, coding string
	open         func(io.Writer) io.WriteCloser
}{
	{"gzip", "gzip", gzipped},
	{"gzip by its old name", " X-Gzip ", gzipped},
	{"deflate", "deflate", zlibbed},
	{"deflate without zlib", "Deflate", deflated},
}

func coded(coding string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {coding}}, Body: io.NopCloser(body)}
}

// TestPeekBodyOfACompressedAnswer: a classifier sees the text, however often it looks
// and at however much of it, and the reader gets every byte as it came.
func TestPeekBodyOfACompressedAnswer(t *testing.T) {
	text := `{"errcode":88,` + strings.Repeat(`"more":"and more",`, 20_000) + `"end":1}`
	for _, c := range codings {
		t.Run(c.name, func(t *testing.T) {
			body := packed(t, text, c.open)
			resp := coded(c.coding, strings.NewReader(body))
			for _, most := range []int{5, 64 << 10, 3, 10 << 20, 1} {
				got, err := peek.Body(resp, int64(most))
				require.NoError(t, err)
				require.Equal(t, text[:min(most, len(text))], string(got))
				read, err := io.ReadAll(peek.Reader(resp, int64(most)))
				require.NoError(t, err)
				require.Equal(t, string(got), string(read))
			}
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, body, string(got), "bit by bit")
			none, err := peek.Body(resp, 5)
			require.NoError(t, err)
			require.Empty(t, none, "its beginning is gone")
		})
	}
}

// TestPeekBodyOfABrokenOne: what could be decoded is seen, and the reader gets all.
func TestPeekBodyOfABrokenOne(t *testing.T) {
	whole := packed(t, strings.Repeat("hello ", 100_000), gzipped)
	for name, body := range map[string]string{
		"nothing":    "",
		"a byte":     "\x1f",
		"no gzip":    "hello world, this is plain text",
		"cut off":    whole[:len(whole)/2],
		"with a bit": whole[:400] + "\xff\xff\xff" + whole[403:],
	} {
		t.Run(name, func(t *testing.T) {
			resp := coded("gzip", strings.NewReader(body))
			for range 2 {
				seen, err := peek.Body(resp, 1<<10)
				require.False(t, err != nil && len(seen) > 0)
				require.Equal(t, strings.Repeat("hello ", 200)[:len(seen)], string(seen))
			}
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, body, string(got))
		})
	}
}

// TestPeekBodyOfBombs: neither much text in few bytes nor many bytes without any text
// cost more than was asked for, and a little.
func TestPeekBodyOfBombs(t *testing.T) {
	const most = 64 << 10
	empty := packed(t, "", gzipped)
	for name, body := range map[string]io.Reader{
		"zeros":          strings.NewReader(packed(t, strings.Repeat("\x00", 4<<20), gzipped)),
		"empty members":  strings.NewReader(strings.Repeat(empty, 1<<20/len(empty))),
		"empty blocks":   strings.NewReader(empty[:10] + strings.Repeat("\x00\x00\x00\xff\xff", 1<<18)),
		"a name on end":  strings.NewReader("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\xff" + strings.Repeat("a", 1<<20)),
		"what is random": strings.NewReader(packed(t, string(noise(1<<20)), gzipped)),
	} {
		t.Run(name, func(t *testing.T) {
			n := &counter{Reader: body}
			resp := coded("gzip", n)
			for range 3 {
				seen, _ := peek.Body(resp, most)
				require.LessOrEqual(t, len(seen), most)
			}
			require.LessOrEqual(t, n.n, most+64<<10+4<<10)
		})
	}
}

// noise returns bytes that cannot be compressed.
func noise(n int) []byte {
	b, x := make([]byte, n), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

type counter struct {
	io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// TestPeekBodyOfASlowCompressedAnswer: all looks together take a second.
func TestPeekBodyOfASlowCompressedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := packed(t, strings.Repeat("hello ", 1000), gzipped)
		r, w := io.Pipe()
		go func() {
			for _, c := range []byte(body) {
				time.Sleep(200 * time.Millisecond)
				_, _ = w.Write([]byte{c})
			}
			_ = w.Close()
		}()
		resp, begin := coded("gzip", r), time.Now()
		for range 3 {
			seen, err := peek.Body(resp, 100)
			require.NoError(t, err)
			require.Empty(t, seen)
		}
		require.Equal(t, time.Second, time.Since(begin))
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(got))
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzPeekBody(f *testing.F) {
	f.Add("hello world", 3, int64(5), int64(8), 4, false)
	f.Add("", 1, int64(1), int64(0), 1, true)
	f.Add(strings.Repeat("x", 1000), 512, int64(600), int64(1<<40), 7, true)
	f.Fuzz(func(t *testing.T, text string, piece int, first, second int64, buffer int, cut bool) {
		body := &countedBody{text: text, piece: max(piece, 0)}
		end := io.EOF
		if cut {
			body.err, end = errCut, errCut
		}
		resp := &http.Response{StatusCode: 200, Body: body}
		for _, limit := range []int64{first, second} {
			got, err := peek.Body(resp, limit)
			if err != nil {
				require.True(t, cut && text == "")
			}
			seen := min(int64(len(text)), max(limit, 0))
			require.Equal(t, text[:seen], string(got))
		}
		require.LessOrEqual(t, int64(body.read), max(first, second, 0))

		var all []byte
		p := make([]byte, min(max(buffer, 1), 4096))
		for {
			n, err := resp.Body.Read(p)
			all = append(all, p[:n]...)
			if err != nil {
				require.Equal(t, end, err)
				break
			}
		}
		require.Equal(t, text, string(all))
	})
}

// FuzzPeekCompressed: whatever calls itself compressed, no more is read of it than was
// asked for and a little, and its reader gets it as it came.
func FuzzPeekCompressed(f *testing.F) {
	for _, c := range codings {
		f.Add(packed(f, "hello world", c.open), c.coding, int64(5), int64(80))
	}
	f.Add("\x1f\x8b\x08", "gzip", int64(1), int64(1))
	f.Fuzz(func(t *testing.T, body, coding string, first, second int64) {
		n := &counter{Reader: strings.NewReader(body)}
		resp := coded(coding, n)
		for _, limit := range []int64{first, second, first} {
			limit = min(limit, 1<<20)
			seen, _ := peek.Body(resp, limit)
			require.LessOrEqual(t, int64(len(seen)), max(limit, 0))
			again, _ := io.ReadAll(peek.Reader(resp, limit))
			require.Equal(t, string(seen), string(again))
		}
		require.LessOrEqual(t, int64(n.n), max(0, min(max(first, second), 1<<20))+64<<10+4<<10)
		all, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, body, string(all))
	})
}
