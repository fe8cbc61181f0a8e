package waitapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/bubble"
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

// TestUnreadBodies: a body that does not come holds a connection for ten seconds, also where no body is read.
func TestUnreadBodies(t *testing.T) {
	for _, request := range []string{"GET /v1/openapi.yaml", "GET /v1/acquire", "POST /v1/openapi.yaml", "POST /v1/acquire", "POST /v1/release", "POST /v1/none"} {
		for _, kind := range []string{"application/json", "text/plain"} {
			play(t, nil, "p: 100/h", func(s *scene) {
				text := fmt.Sprintf("%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{", request, kind)
				took, err := bubble.Send(s.h, text)
				require.NoError(s, err)
				require.LessOrEqual(s, took, 11*time.Second, request)
			})
		}
	}
}
