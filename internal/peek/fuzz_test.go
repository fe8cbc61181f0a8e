package peek_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/peek"
)

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
