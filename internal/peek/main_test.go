package peek_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain fails the run if a goroutine outlives the tests (P15). Connections
// that a test closed need a moment to notice. Fuzzing itself listens for signals
// and leaves a goroutine behind.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "P15: goroutines outlived the tests:")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
			break
		}
	}
	os.Exit(code)
}
