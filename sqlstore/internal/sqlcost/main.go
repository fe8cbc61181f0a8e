//go:build unix

// Command sqlcost measures what a start costs with budgets in MySQL or MariaDB, beside the plain way: a transaction for each start
// that locks the budget's row and reads it, decides, and writes it; and beside Redis.
//
//	go run ./internal/sqlcost -for 5s      # in the folder of the module sqlstore
//
// It starts a server whose files are on a disk, so that a commit costs what it costs there.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/crew"
	"github.com/fleetthrottle/throttle/internal/mysqltest"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/sqlstore"
)

func main() {
	crew.Main(role, member)
	length := flag.Duration("for", 5*time.Second, "how long each measurement takes")
	folder := flag.String("dir", os.TempDir(), "where the server's files are: on a disk, not in memory")
	flag.Parse()
	p := new(program)
	err := p.run(*folder, *length)
	p.end()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sqlcost:", err)
		os.Exit(1)
	}
}

// A program starts a server as a test does.
type program struct {
	folder string
	ends   []func()
}

func (p *program) Helper()                          {}
func (p *program) Cleanup(f func())                 { p.ends = append(p.ends, f) }
func (p *program) Fatal(all ...any)                 { p.Fatalf("%s", fmt.Sprint(all...)) }
func (p *program) Errorf(format string, all ...any) { p.Fatalf(format, all...) }

// TempDir returns a new folder on the disk.
func (p *program) TempDir() string {
	dir, err := os.MkdirTemp(p.folder, "sqlcost")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *program) Fatalf(format string, all ...any) {
	p.end()
	fmt.Fprintf(os.Stderr, "sqlcost: "+format+"\n", all...)
	os.Exit(1)
}

func (p *program) end() {
	for _, f := range slices.Backward(p.ends) {
		f()
	}
	p.ends = nil
}

// A measure is one line of the table.
type measure struct {
	name               string
	way                string
	processes, callers int
	flush              int // innodb_flush_log_at_trx_commit; of Redis: 1 is appendfsync always, 0 no file
}

var measures = []measure{
	{"a transaction for each start", plain, 4, 16, 1},
	{"sqlstore", together, 4, 16, 1},
	{"sqlstore, statements one by one", oneByOne, 4, 16, 1},
	{"sqlstore", together, 16, 16, 1},
	{"sqlstore" + held, together, 4, 16, 1},
	{"redisstore", durable, 4, 16, 1},
	{"a transaction for each start", plain, 4, 16, 2},
	{"sqlstore", together, 4, 16, 2},
	{"redisstore", volatile, 4, 16, 0},
	{"a transaction for each start", plain, 1, 1, 1},
	{"sqlstore", together, 1, 1, 1},
	{"sqlstore, statements one by one", oneByOne, 1, 1, 1},
	{"redisstore", durable, 1, 1, 1},
	{"sqlstore", together, 1, 1, 2},
	{"redisstore", volatile, 1, 1, 0},
}

// held ends the name of a measure during which somebody reads the tables as they were at its beginning.
const held = ", a snapshot is held"

// A fleet is the servers that are measured.
type fleet struct {
	db     *sql.DB
	dsn    string
	redis  map[string]string // addresses, by way
	length time.Duration
}

func (p *program) run(folder string, length time.Duration) error {
	p.folder = folder
	server := mysqltest.StartIn(p, folder, "--innodb-log-file-size=96M")
	f := fleet{dsn: server.Database(p, "cost"), length: length, redis: map[string]string{
		durable:  redistest.Single(p, "--appendonly", "yes", "--appendfsync", "always").Addr,
		volatile: redistest.Single(p).Addr,
	}}
	var err error
	if f.db, err = sql.Open("mysql", f.dsn); err != nil {
		return err
	}
	defer f.db.Close()
	ctx := context.Background()
	if err := errors.Join(sqlstore.CreateTable(ctx, f.db), createPlain(ctx, f.db)); err != nil {
		return err
	}
	sync, err := syncs(folder)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%d processors, %s; a write of 512 bytes with fsync takes %v (half of them)\n", server.Version(), runtime.NumCPU(), runtime.Version(), sync)
	fmt.Printf("one budget, %v each; flush: innodb_flush_log_at_trx_commit; of Redis: 1 is appendfsync always, 0 is no file\n\n", length)
	fmt.Printf("%-34s %9s %6s %14s %10s %10s %10s %10s\n", "", "callers", "flush", "starts/second", "half", "99 %", "longest", "commits/s")
	for i := range measures {
		if err := f.run(ctx, &measures[i]); err != nil {
			return err
		}
	}
	return nil
}

// run makes a measurement and prints its line.
func (f *fleet) run(ctx context.Context, m *measure) error {
	if _, err := f.db.ExecContext(ctx, fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d; DELETE FROM throttle_rows", m.flush)); err != nil {
		return err
	}
	if strings.HasSuffix(m.name, held) {
		tx, err := f.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // it has changed nothing
		var rows int                         // a read begins the snapshot
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM throttle_rows").Scan(&rows); err != nil {
			return err
		}
	}
	all, err := crew.Muster(ctx, role, slices.Repeat([]orders{{m.way, cmp.Or(f.redis[m.way], f.dsn), m.callers, f.length}}, m.processes))
	if err != nil {
		return err
	}
	defer all.Kill()
	before, err := commits(ctx, f.db)
	if err != nil {
		return err
	}
	if err := all.Tell("go"); err != nil {
		return err
	}
	var waits []time.Duration
	for _, one := range all {
		var r result
		if err := one.Hear(&r); err != nil {
			return err
		}
		waits = append(waits, r.Waits...)
	}
	after, err := commits(ctx, f.db)
	if err != nil {
		return err
	}
	slices.Sort(waits)
	part := func(p float64) time.Duration { return waits[int(p*float64(len(waits)-1))].Round(10 * time.Microsecond) }
	fmt.Printf("%-34s %4d × %2d %6d %14.0f %10v %10v %10v %10.0f\n", m.name, m.processes, m.callers, m.flush, float64(len(waits))/f.length.Seconds(),
		part(0.5), part(0.99), part(1), float64(after-before)/f.length.Seconds())
	return nil
}

// commits returns how many transactions the server has committed.
func commits(ctx context.Context, db *sql.DB) (n int64, err error) {
	var name string
	err = db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Com_commit'").Scan(&name, &n)
	return n, err
}

// syncs measures how long a write with fsync takes.
func syncs(folder string) (half time.Duration, err error) {
	f, err := os.CreateTemp(folder, "sqlcost")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	var took []time.Duration
	for range 500 {
		began := time.Now()
		_, err := f.Write(make([]byte, 512))
		if err := cmp.Or(err, f.Sync()); err != nil {
			return 0, errors.Join(err, f.Close())
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(time.Microsecond), f.Close()
}
