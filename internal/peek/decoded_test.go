package peek_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/peek"
)

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
