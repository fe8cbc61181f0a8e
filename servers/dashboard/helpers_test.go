package dashboard

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// fixed is a source that says what it is told to.
type fixed struct {
	mu    sync.Mutex
	reads int
	next  func(n int) (*reading, error) // of the n-th reading; nil: nothing is there
	acts  []string
	err   error // of acts
}

func (f *fixed) reader(int) reader { return f }

func (f *fixed) read(context.Context, bool) (*reading, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.next == nil {
		return &reading{At: time.Now(), Kind: kindProcess}, nil
	}
	return f.next(f.reads)
}

func (f *fixed) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fixed) pause(_ context.Context, budget string, d time.Duration, by, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, "pause "+budget+" "+d.String()+" "+by+": "+reason)
	return f.err
}

func (f *fixed) resume(_ context.Context, budget, by, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, "resume "+budget+" "+by+": "+reason)
	return f.err
}

// counting returns readings of one budget that has used as many starts as there were readings.
func counting(n int) (*reading, error) {
	return &reading{At: time.Now(), Kind: kindProcess, Budgets: []budget{{ID: "shop/1", Name: "shop/1", Policy: "shop", Limits: []string{"20/s"}, Kind: windowed, Capacity: 20, Used: n}}}, nil
}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
