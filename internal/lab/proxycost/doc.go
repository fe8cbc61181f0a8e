// Proxycost measures what throttle proxy costs, beside no proxy and beside a plain
// [net/http/httputil.ReverseProxy], each in a process of its own:
//
//	go run ./internal/lab/proxycost
//	scripts/with-redis.sh sh -c 'go run ./internal/lab/proxycost -redis "$REDIS_URL"'
//
// A client sends requests at a rate, and then as fast as it goes, to an upstream with TLS that
// answers at once. The processor time and the memory of the proxy's process come from /proc, so it
// needs Linux.
package main
