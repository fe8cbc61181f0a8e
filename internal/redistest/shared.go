package redistest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// databases is how many logical databases the shared server has. They cost
// next to nothing, and are used again from the first when all were used.
const databases = 1024

// shared is the one server of the test binary, started by the first test that
// asks for it.
var shared struct {
	sync.Mutex
	main bool // Main runs, so the server will be stopped
	p    *process
	used int
}

var namespaces atomic.Int64

func namespace() string { return fmt.Sprintf("test%d", namespaces.Add(1)) }

// Main runs the tests and then stops the server of [Shared]. A package that
// uses Shared has
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m *testing.M) int {
	shared.Lock()
	shared.main = true
	shared.Unlock()

	code := m.Run()

	shared.Lock()
	defer shared.Unlock()
	if shared.p != nil {
		shared.p.kill()
	}
	return code
}

// Shared returns a logical database of its own, empty, on a server that all
// tests of the binary share; that saves the start of one each. A test
// that stops, pauses or flushes the whole server needs [Single] instead. The
// package's TestMain must call [Main].
func Shared(t TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("redistest: Shared needs a TestMain that calls redistest.Main")
	}
	if shared.p == nil {
		p, err := start(os.TempDir(), func(port int) []string {
			return append(options(port), "--databases", fmt.Sprint(databases))
		})
		if err != nil {
			t.Fatal(err)
		}
		shared.p = p
	}
	s := newServer(t, shared.p, shared.used%databases)
	shared.used++
	if err := s.Client(t).FlushDB(context.Background()).Err(); err != nil {
		t.Fatalf("redistest: emptying database %d of %s: %v", s.DB, s.Addr, err)
	}
	return s
}
