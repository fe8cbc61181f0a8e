// Package grpcthrottle holds the calls of a gRPC client to the budgets of throttle:
//
//	limits, err := throttle.NewLimiters(throttle.Config{
//		Store: store,
//		Policies: []throttle.Policy{
//			{Name: "catalog", Match: "catalog.example.com/", Limit: throttle.PerSecond(50)},
//			{Name: "search", Match: "catalog.example.com/shop.v1.Catalog/Search", Limit: throttle.PerSecond(5)},
//		},
//	})
//	conn, err := grpc.NewClient("dns:///catalog.example.com:443",
//		append(grpcthrottle.New(limits, grpcthrottle.Options{}).DialOptions(), credentials)...)
//
// A call is matched as a POST of https://authority/package.Service/Method, with its
// outgoing metadata as header fields: so the patterns, Key and Cost of policies see it.
// Functions of policies that look at answers are not called: see [Options].
//
// A call waits for as long as its context and MaxWait of the [throttle.Config] allow, and
// for a minute, if neither has a bound. What a Concurrency limit
// counts as in flight ends with the call, and at the latest with its context.
package grpcthrottle
