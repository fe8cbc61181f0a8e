// Package servers is shared by the packages that start servers for tests, each of its own kind: the test for which a server is
// started, the port that it gets, and the user as which it runs.
package servers

// A TB is the test for which servers are started. Tests and benchmarks are TBs, and a program can make one. Fatal and Fatalf do not return.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
