//go:build unix

package fleet

import (
	"net/http"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

func init() { testLimiters["wasteful"] = wasteful }

// wasteful is throttle's transport in a process that makes much more garbage than it
// has memory for.
func wasteful(m Member) (http.RoundTripper, error) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(48 << 20)
	go func() {
		var kept [256][]byte // 16 MB
		for i := 0; ; i++ {
			kept[i%len(kept)] = make([]byte, 64<<10)
			time.Sleep(50 * time.Microsecond)
		}
	}()
	return throttled(m)
}

// TestP2_GarbageCollector has processes that collect garbage all the time.
func TestP2_GarbageCollector(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	tr := troupeOf(t, "wasteful", 5*time.Second)
	slack := tr.end()
	require.LessOrEqual(t, tr.up.Worst(), 40+slack)
	at, _ := tr.between(time.Second, 5*time.Second)
	require.Greater(t, len(at), 80)
}
