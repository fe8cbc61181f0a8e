package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestSetUsed: what is wrong is said at once, before it is asked whether to act, and the audit
// says from what to what the count went.
func TestSetUsed(t *testing.T) {
	server := chdirFiles(t)
	for _, c := range []struct {
		to, policy string
		text       string
	}{
		{"", "shop", "throttle: --to: say how much is used, from 0 to the limit\n"},
		{"-3", "shop", "throttle: --to: -3 is less than nothing\n"},
		{"NaN", "nobody", "throttle: --to: \"NaN\" is no whole number from 0 to the limit\n\"nobody\": no node has reported a policy or a budget of this name; say --file if none has used it yet\n"},
		{"6", "shop", "throttle: shop/f32021364bac: 6 is more than its limit, 5/h; at the limit nothing starts either, so set it to 5, and lower the limit if the upstream counts more\n"},
	} {
		code, out := throttleCommand(t, "set-used", c.policy, "--key", "acme", "--file", "good.yaml", "--to", c.to)
		require.Equal(t, exitUsage, code)
		require.Equal(t, c.text, out)
	}
	code, out := throttleCommand(t, "set-used", "shop", "--key", "acme", "--file", "good.yaml", "--to", "4", "--yes")
	require.Equal(t, exitConflict, code)
	require.Contains(t, out, "shop/f32021364bac has no count in Redis that could be set")

	startFollower(t, server)
	out = must(t, "set-used", "shop", "--key", "acme", "--to", "4", "--by", "anna", "--reason", "they count more", "--yes")
	require.Equal(t, "shop/f32021364bac has 4 used, 1 before\n", out)
	require.Contains(t, must(t, "audit"), "set-used from 1 to 4")
}

// TestPauseInsideABan: a pause that ends before a ban says that the ban stays, and no resume lifts it.
func TestPauseInsideABan(t *testing.T) {
	server := chdirFiles(t)
	l, err := throttle.NewLimiter(redisstore.New(server.Client(t), redisstore.Options{}), throttle.Policy{Name: "shop", Keyed: true, Limit: throttle.PerHour(5)})
	require.NoError(t, err)
	require.NoError(t, l.Pause(t.Context(), "acme", 5*time.Minute))

	pause := []string{"pause", "shop", "--key", "acme", "--file", "good.yaml", "--yes", "--for"}
	require.Regexp(t, `^shop/f32021364bac stays closed for (5 min|4 min \d+ s), by a ban that ends later\n$`, must(t, append(pause, "1m")...))
	for _, of := range [][]string{{"shop", "--key", "acme", "--file", "good.yaml"}, {"--all"}} {
		code, out := throttleCommand(t, append([]string{"resume", "--yes"}, of...)...)
		require.Equal(t, exitConflict, code)
		require.Contains(t, out, "shop/f32021364bac is closed by an answer of its upstream for ")
	}

	require.Equal(t, "shop/f32021364bac is closed for 10 min\n", must(t, append(pause, "10m")...))
	require.Equal(t, "shop/f32021364bac is open\n", must(t, "resume", "--yes", "--all"))
}
