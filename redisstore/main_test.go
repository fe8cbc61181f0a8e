package redisstore_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestMain stops the shared server, and fails if a goroutine of the store is
// still there when all tests are over.
func TestMain(m *testing.M) {
	code := redistest.Main(m)
	if left := leaked(10 * time.Second); left != "" {
		fmt.Fprintln(os.Stderr, "P15 broken: goroutines outlive the tests:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines that the store started and that do not
// end, however long one waits.
func leaked(patience time.Duration) (left string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "throttle/redisstore.") || strings.Contains(g, "throttle/redisstore/internal") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			break
		}
	}
	return left
}
