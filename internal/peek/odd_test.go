package peek_test

import (
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/peek"
)

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
