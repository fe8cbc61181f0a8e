package redistest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// databases is how many logical databases the shared server has. They cost
// next to nothing, and are used again from the first when all were used.
const databases = 1024

// shared are the servers of the test binary: as many as tests have asked for at a
// time. They are started when there is no free one, and used again.
var shared struct {
	sync.Mutex
	main bool // Main runs, so the servers will be stopped
	all  []*lent
}

// A lent server belongs to one test at a time, since messages, scripts and
// settings are settings of the server and not of a database.
type lent struct {
	p    *process
	used int // databases
	by   TB  // nil: it is free
}

// Main runs the tests and then stops the servers of [Shared]. A package that
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
	for _, l := range shared.all {
		l.p.kill()
	}
	return code
}

// Shared returns a logical database of its own, empty, on a server that the tests
// of the binary use by turns; that saves the start of one each. Tests that run side
// by side have different servers, and all calls of a test the same. A test that
// stops, pauses or flushes the whole server needs [Single] instead. The package's
// TestMain must call [Main].
func Shared(t TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()

	if !shared.main {
		t.Fatal("redistest: Shared needs a TestMain that calls redistest.Main")
	}

	l := lend(t)
	s := newServer(t, l.p, l.used%databases)
	l.used++
	if err := s.Client(t).FlushDB(context.Background()).Err(); err != nil {
		t.Fatalf("redistest: emptying database %d of %s: %v", s.DB, s.Addr, err)
	}

	return s
}

// lend returns the server that t has, or a free server, or a new server.
func lend(t TB) *lent {
	for _, l := range shared.all {
		if l.by == t {
			return l
		}
	}

	i := slices.IndexFunc(shared.all, func(l *lent) bool { return l.by == nil })
	if i < 0 {
		p, err := start(os.TempDir(), func(port int) []string {
			return append(options(port), "--databases", fmt.Sprint(databases))
		})
		if err != nil {
			t.Fatal(err)
		}

		i, shared.all = len(shared.all), append(shared.all, &lent{p: p})
	}

	l := shared.all[i]
	l.by = t
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		l.by = nil
	})

	return l
}
