package asynqthrottle_test

import (
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/readme"
)

// TestReadmeCompiles: readers copy the program, so it passes go vet as it stands.
func TestReadmeCompiles(t *testing.T) { readme.Vet(t) }
