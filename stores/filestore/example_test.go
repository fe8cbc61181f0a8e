//go:build linux || darwin

package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// All programs of this machine that open the directory share 20 requests a second.
func Example() {
	dir := filepath.Join(os.TempDir(), "throttle-example") // /var/lib/my-app/budgets, for example
	defer os.RemoveAll(dir)

	s, err := filestore.New(dir, filestore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := throttle.New(throttle.Config{
		Store:    s,
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: store.PerSecond(20)}},
	})
	fmt.Println(transport != nil, err)
	// Output: true <nil>
}

// Two programs of one machine run one backup at a time. If one of them is killed, the other one may go on.
func Example_concurrency() {
	dir := filepath.Join(os.TempDir(), "throttle-example-concurrency")
	defer os.RemoveAll(dir)

	s, err := filestore.New(dir, filestore.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	backups, err := throttle.NewLimiter(s, throttle.Policy{Name: "backup", Limit: store.Concurrency(1)})
	if err != nil {
		fmt.Println(err)
		return
	}
	permit, err := backups.Acquire(context.Background(), "", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer permit.Release()
	fmt.Println("this program backs up")
	// Output: this program backs up
}
