package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP10_AProgramForgets: what a program remembers of the budgets that it used,
// and of their pauses, is bounded.
func TestP10_AProgramForgets(t *testing.T) {
	t.Parallel()
	s := redisstore.New(redistest.Shared(t).Client(t), nil)
	require.Equal(t, redisstore.MostBudgets, s.RememberBudgets(redisstore.MostBudgets+100))
	require.Equal(t, redisstore.MostClosings, s.RememberPauses(redisstore.MostClosings+100))
}
