package peek_test

import (
	"os"
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/leaks"
)

// TestMain fails the run if a goroutine outlives the tests (P15).
func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }
