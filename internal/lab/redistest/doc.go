// Package redistest starts real redis-server processes for tests and stops
// them again: one server ([Single], [Shared]), three masters of a cluster
// ([Cluster]), or a master and a replica watched by a sentinel ([Sentinel]).
//
// Every server listens on a free port of the loopback interface, keeps nothing
// on disk, and is gone when its test is over. On Linux it is gone even when
// the test binary is killed. A missing server fails the test: nothing is ever
// skipped. The environment variable REDIS_SERVER names a different binary, such as
// valkey-server; Redis 7 is the oldest that works.
//
// Start servers outside of testing/synctest bubbles. The goroutine that keeps
// a server waits for its process, so a bubble that holds it would never be
// idle.
package redistest
