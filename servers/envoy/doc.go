// Package envoy holds the requests that pass through Envoy, Istio or Envoy Gateway to the policies of a
// [throttle.Transport]. A [Server] serves two protocols over gRPC:
//
// External processing (envoy.service.ext_proc.v3). Envoy sends the headers of a request, and holds the request until
// the server answers. The server answers when all policies of the request have room, or with an immediate response: 429
// with Retry-After. The answer of the upstream comes back on the same stream, so that penalties, quotas and costs are
// read from it. Slots under a Concurrency limit are given back when the stream ends, however it ends.
//
// Rate limit service (envoy.service.ratelimit.v3). Descriptors name policies and keys. ShouldRateLimit returns OK when
// there is room, or OVER_LIMIT with a time.
//
//	transport, err := throttle.New(throttle.Config{Store: store, Policies: policies, Base: envoy.NewBase(), Observe: envoy.Observe})
//	server, err := envoy.New(envoy.Config{Transport: transport})
//	err = server.Serve(listener)
//
// A request body is asked for only where a policy reads it to make a key or a cost, and the body of an answer only where
// a policy reads it: the filter must allow that by allow_mode_override. [The page on Envoy] has the configuration of the
// filters.
//
// The last check of a start comes before the server's answer, and not before the write: Envoy may still have to connect
// to the upstream. The Jitter of the policies must cover that time.
//
// [The page on Envoy]: https://github.com/fleetthrottle/throttle/blob/main/docs/use/envoy.md
package envoy
