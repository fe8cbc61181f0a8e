package envoy_test

import (
	"context"
	"fmt"
	"net"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/envoy"
)

// A server for both filters. A filter asks the rate limit service twice: the second call would have to wait for an hour.
func Example() {
	store := memstore.New()
	policies := []throttle.Policy{{Name: "search", Match: "api.example.com/search", Limit: throttle.PerHour(1)}}
	transport, err := throttle.New(throttle.Config{Store: store, Policies: policies, Base: envoy.NewBase(), Observe: envoy.Observe})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiters, err := throttle.NewLimiters(throttle.Config{Store: store, Policies: throttle.WithoutAnswers(policies), Observe: envoy.Observe})
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := envoy.New(envoy.Config{Transport: transport, Limiters: limiters})
	if err != nil {
		fmt.Println(err)
		return
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = server.Serve(listener) }() // nil after Shutdown
	defer server.Shutdown(context.Background())

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	for range 2 {
		answer, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), &ratelimitv3.RateLimitRequest{
			Domain: "search", Descriptors: []*descriptorv3.RateLimitDescriptor{{}},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.GetOverallCode())
	}
	// Output:
	// OK
	// OVER_LIMIT
}
