package sdktest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestUpstreamNotices: a program that keeps to nothing is found out.
func TestUpstreamNotices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, shopPlatform())
		defer u.stop()
		u.refuse(50)
		client := &http.Client{Transport: u.base()}
		u.calls(0, 200, 24, func(int, int) error {
			resp, err := client.Post("https://api.example.com/orders", "application/json", strings.NewReader(`{"id":"1"}`))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
		require.NotEmpty(t, u.over)
		require.NotEmpty(t, u.early)
		require.NotEqual(t, 1, u.effects["1"])
	})
}
