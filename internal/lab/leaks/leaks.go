// Package leaks finds goroutines that outlive the tests of a package (P15).
package leaks

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// Main runs the tests and returns the code to exit with: it is not 0 if a test fails, or if a goroutine outlives the tests
// by a minute. Then Main prints all goroutines to stderr. Goroutines of connections that a test closed need a moment to end, and longer on a busy machine. Main does
// not look for goroutines when it fuzzes, because fuzzing itself leaves one behind.
func Main(m *testing.M) int {
	before := runtime.NumGoroutine()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return code
	}

	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "P15: goroutines outlived the tests:")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return 1
		}
	}

	return code
}
