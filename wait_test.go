package throttle_test

import (
	"net/http"
	"net/url"

	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

const (
	ms = time.Millisecond
	us = time.Microsecond

	home = "https://example.com/"
)

// TestLimitErrorThroughTheClient: http.Client wraps every error in a *url.Error.
func TestLimitErrorThroughTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, answer(200, ""), onePerHour)
		require.NoError(t, send(t, tr, get(t, home)))
		r := get(t, home)
		_, err := (&http.Client{Transport: tr}).Do(r.WithContext(throttle.WithMaxWait(r.Context(), -1)))
		var u *url.Error
		require.ErrorAs(t, err, &u)
		require.ErrorIs(t, err, throttle.ErrLimited)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, "hourly", limited.Policy)
		require.Equal(t, throttle.PerHour(1), limited.Limit)
		require.Equal(t, time.Hour+35*ms+us, limited.RetryAfter)
		require.False(t, limited.Paused)
	})
}
