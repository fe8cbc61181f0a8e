package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestMain lets the test be one of the processes, too.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-part") {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestProcesses: three processes pull everybody, each person once, and nothing is refused.
func TestProcesses(t *testing.T) {
	var out strings.Builder
	require.NoError(t, runTogether(t.Context(), &out, 3, 600, ""))
	require.Contains(t, out.String(), "pulled 600 people")
	require.Regexp(t, `listsubid +\d+ +0 `, out.String())
	require.Contains(t, out.String(), "bans: 0\n")
}

// TestRun: everybody comes, and nothing is refused.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		c := throttle.Config{Store: memstore.New(), MaxWait: 20 * time.Minute}
		require.NoError(t, new(book).pullFake(t.Context(), &out, c, false))
		require.Contains(t, out.String(), "pulled 3000 people in 7.")
		require.Contains(t, out.String(), "listsubid   150     0         20 of 20 ")
		require.Contains(t, out.String(), "user/list              156     0         20 of 20 ")
		require.Contains(t, out.String(), "accessToken          1       0         1 of 20 ")
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
