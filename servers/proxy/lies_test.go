package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatusThatIsNone: an upstream that answers with a status that is none has not answered.
func TestStatusThatIsNone(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 "+r.URL.Query().Get("status")+" Odd\r\nContent-Length: 2\r\n\r\nok")
		require.NoError(t, err)
	}, nil, rows...)
	for _, status := range []string{"000", "099"} {
		s.refused(http.StatusBadGateway, "/api.example.com/v1/?status="+status)
	}
	resp, body := s.get("/api.example.com/v1/?status=999")
	require.Equal(t, "999 ok", resp.Status[:3]+" "+body)
	require.EqualValues(t, 2, s.handler.Stats().Refused["upstream"])
}

// TestUpgradeBeforeAnswer: an upstream of HTTP/2 cannot make a caller believe that the connection is
// another protocol's now.
func TestUpgradeBeforeAnswer(t *testing.T) {
	s := newNamedScene(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
		_, _ = io.WriteString(w, "ok")
	}, nil, rows...)
	w := s.dial()
	w.send("GET /api.example.com/v1/ HTTP/1.1\nHost: localhost\n\n")
	resp, err := http.ReadResponse(bufio.NewReader(w.Conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "ok", string(body))
}
