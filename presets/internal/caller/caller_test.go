package caller_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
)

func TestKeys(t *testing.T) {
	r := &http.Request{Header: http.Header{"App": {"a"}, "Tenant": {"t"}}}
	app, tenant := throttle.Header("App"), throttle.Header("Tenant")
	both := func(r *http.Request) (string, string) { return app(r), tenant(r) }

	require.Equal(t, "x", caller.Always("x")(r))
	require.Equal(t, "x", caller.ID("x", nil)(r))
	require.Equal(t, "a", caller.ID("x", app)(r))

	first, second := caller.IDs("x", "y", nil)
	require.Equal(t, "x y", first(r)+" "+second(r))
	first, second = caller.IDs("x", "y", both)
	require.Equal(t, "a t", first(r)+" "+second(r))

	require.Equal(t, "x", caller.Or(caller.Always("x"), app)(r))
	require.Equal(t, "a", caller.Or(caller.Always(""), app)(r))
}
