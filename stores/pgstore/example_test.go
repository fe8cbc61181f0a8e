package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/pgstore"
)

// All programs that open the database share 20 requests a second. Setup, or schema.sql, has been run once.
func Example() {
	s, err := pgstore.New("postgres://app@db.example.com/app", pgstore.Options{}) // os.Getenv("DATABASE_URL"), for example
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := throttle.New(throttle.Config{
		Store:    s,
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: store.PerSecond(20)}},
		MaxWait:  time.Minute,
	})
	fmt.Println(transport != nil, err)
	// Output: true <nil>
}

// A program that may create a schema sets up the database by itself, each time that it starts.
func ExampleSetup() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := pgstore.Setup(ctx, os.Getenv("DATABASE_URL"), pgstore.Options{}); err != nil {
		fmt.Println(err)
	}
}
