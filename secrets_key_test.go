package throttle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP14_NoPartOfTheKeyLeaves: what names a budget in the store holds nothing of
// the key.
func TestP14_NoPartOfTheKeyLeaves(t *testing.T) {
	const key = "a token that opens everything"
	tr := newTransport(t, answer(200, ""), throttle.Policy{Name: "p", Limit: throttle.PerSecond(1), Key: constant(key)})
	named := tr.Explain(get(t, home))[0].Budget.Key
	for i := range len(key) - 2 {
		require.NotContains(t, string(named[:]), key[i:i+3])
	}
}
