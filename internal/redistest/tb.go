package redistest

// A TB is what this package needs of whoever starts servers: the clean-up at
// the end, a directory, and a way to fail. Tests and benchmarks have it, and a
// program can. Fatal and Fatalf do not return.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
