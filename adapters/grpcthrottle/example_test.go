package grpcthrottle_test

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/grpcthrottle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A client's calls are held: 50 a second, of which 5 may be searches. docs/use/batch.md quotes it.
func Example() {
	var store throttle.Store = memstore.New() // redisstore.New(rdb, redisstore.Options{}) for a fleet
	limits, err := throttle.NewLimiters(throttle.Config{
		Store:   store,
		MaxWait: time.Hour,
		Policies: []throttle.Policy{
			{Name: "catalog", Match: "catalog.example.com/", Limit: throttle.PerSecond(50)},
			{Name: "search", Match: "catalog.example.com/shop.v1.Catalog/Search", Limit: throttle.PerSecond(5)},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := grpc.NewClient("dns:///catalog.example.com:443",
		append(grpcthrottle.New(limits, grpcthrottle.Options{}).DialOptions(), grpc.WithTransportCredentials(credentials.NewTLS(nil)))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: dns:///catalog.example.com:443
}
