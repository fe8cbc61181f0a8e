package peek_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/peek"
)

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
