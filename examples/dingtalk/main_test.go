package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestRun: everybody comes, and nothing is refused.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(t.Context(), &out, false))
		require.Contains(t, out.String(), "pulled 3000 people in 7.")
		require.Contains(t, out.String(), "listsub   150     0         20 of 20 ")
		require.Contains(t, out.String(), "user/list            156     0         20 of 20 ")
		require.Contains(t, out.String(), "bans: 0\n")
	})
}

// TestPage: -dashboard prints where its page is, and the page is there.
func TestPage(t *testing.T) {
	var out strings.Builder
	config := throttle.Config{Store: memstore.New()}
	require.NoError(t, showPage(t.Context(), &out, &config, "127.0.0.1:0"))
	require.NotNil(t, config.Observe)
	resp, err := http.Get(regexp.MustCompile(`http://\S+`).FindString(out.String()))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "<h1>Address book</h1>")
}
