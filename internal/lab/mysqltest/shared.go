package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// shared is the server that tests use together that only need a database of their own.
var shared struct {
	sync.Mutex
	ends      []func() // stop it, or nil if Main does not run
	server    *Server
	databases int
}

// Main runs the tests and then stops the server of [Shared]. A package that uses Shared has
//
//	func TestMain(m *testing.M) { os.Exit(mysqltest.Main(m)) }
func Main(m *testing.M) int {
	shared.ends = make([]func(), 0, 1)
	code := m.Run()
	for _, end := range shared.ends {
		end()
	}
	return code
}

// A keeper lets resources live until the program ends, and not the test.
type keeper struct{ testing.TB }

func (keeper) Cleanup(end func()) { shared.ends = append(shared.ends, end) }

// Shared returns the data source name of a new database on a server that tests share. The package's TestMain must call [Main].
func Shared(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.ends == nil {
		t.Fatal("mysqltest: TestMain does not call mysqltest.Main")
	}
	if shared.server == nil {
		shared.server = Start(keeper{t})
	}
	shared.databases++
	return shared.server.Database(t, fmt.Sprint("shared", shared.databases))
}

// Database makes a database unless it is there, and returns its data source name for root. The program has to import
// a driver that is registered as mysql: this package imports none, so that the root module does not need one.
func (s *Server) Database(t servers.TB, name string) string {
	t.Helper()
	db, err := sql.Open("mysql", s.dsn(""))
	if err != nil {
		t.Fatalf("mysqltest: %v", err)
	}
	_, err = db.ExecContext(context.Background(), "CREATE DATABASE IF NOT EXISTS "+name)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatalf("mysqltest: %v", err)
	}
	return s.dsn(name)
}

func (s *Server) dsn(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s?multiStatements=true", s.Addr(), database)
}
