package redistest

// A TB is what this package needs of a program that starts servers: the clean-up
// at the end, a directory, and a way to fail. Tests and benchmarks are TBs, and a
// program can make one. Fatal and Fatalf do not return.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
