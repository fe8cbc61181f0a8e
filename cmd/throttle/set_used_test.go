package main

import (
	"testing"

	"github.com/stretchr/testify/require"
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
