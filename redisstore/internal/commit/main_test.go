package commit

import (
	"os"
	"testing"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestMain stops the shared server when all tests are over.
func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
