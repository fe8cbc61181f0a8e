package examplestore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/examplestore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
)

func TestDirectory(t *testing.T) {
	soak.WithoutRace(t)
	dir := t.TempDir()
	rowtest.Run(t, func(*testing.T) rowstore.Database { return examplestore.Open(dir) }, rowstore.Options{})
}

// All programs of this machine that name the directory share 20 requests a second.
func Example() {
	dir, err := os.MkdirTemp("", "budgets")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	s, err := rowstore.New(examplestore.Open(dir), rowstore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := throttle.New(throttle.Config{
		MaxWait:  throttle.Forever,
		Store:    s,
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: store.PerSecond(20)}},
	})
	fmt.Println(transport != nil, err)
	// Output: true <nil>
}
