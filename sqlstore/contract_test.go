package sqlstore_test

import (
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/storetest"
)

// lease lets no node of a bubble die.
const lease = farthest.Wait

// TestContract: one program.
func TestContract(t *testing.T) {
	t.Parallel()
	dsn := table(t)
	storetest.Run(t, func(t *testing.T) throttle.Store { return newBubble(t, dsn)() })
}
