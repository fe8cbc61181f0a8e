package waitapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/servers/waitapi"
)

// TestSlowBodies: callers whose bodies come slowly take no place among those that wait, and are bounded
// themselves.
func TestSlowBodies(t *testing.T) {
	play(t, func(c *waitapi.Config) { c.Held = 1 }, "p: 100/h", func(s *scene) {
		slow := func(path string) (end func()) {
			from, to := io.Pipe()
			r := s.request(context.Background(), path, "")
			r.Body = from
			go s.h.ServeHTTP(httptest.NewRecorder(), r)
			synctest.Wait()
			return func() { to.Close() }
		}
		end := slow("acquire")
		got := s.do("acquire", want("p"))
		require.Equal(s, http.StatusOK, got.Code)
		ends := []func(){end}
		for range 1023 {
			ends = append(ends, slow("release"))
		}
		full := s.do("release", named(got))
		require.Equal(s, []any{503, "1", "too many bodies are on their way to this process"}, []any{full.Code, full.Get("Retry-After"), full.Detail})
		for _, end := range ends {
			end()
		}
		synctest.Wait()
		require.Equal(s, http.StatusNoContent, s.do("release", named(got)).Code)
	})
}
