//go:build unix

// Command sqlcost measures what a start costs with budgets in MySQL or MariaDB, beside the plain way: a transaction for each start
// that locks the budget's row and reads it, decides, and writes it.
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
	"time"

	"github.com/fleetthrottle/throttle/internal/crew"
	"github.com/fleetthrottle/throttle/sqlstore"
	"github.com/fleetthrottle/throttle/sqlstore/internal/mysqltest"
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
type program struct{ ends []func() }

func (p *program) Helper()          {}
func (p *program) Cleanup(f func()) { p.ends = append(p.ends, f) }
func (p *program) Fatal(all ...any) { p.Fatalf("%s", fmt.Sprint(all...)) }

func (p *program) Fatalf(format string, all ...any) {
	p.end()
	fmt.Fprintf(os.Stderr, "sqlcost: "+format+"\n", all...)
	os.Exit(1)
}

func (p *program) end() {
	for _, f := range p.ends {
		f()
	}
	p.ends = nil
}

// A measure is one line of the table.
type measure struct {
	name               string
	way                string
	processes, callers int
	flush              int  // innodb_flush_log_at_trx_commit; 0: 1
	held               bool // a snapshot is held meanwhile
}

var measures = []measure{
	{"a transaction for each start", plain, 4, 16, 1, false},
	{"sqlstore", together, 4, 16, 1, false},
	{"sqlstore, statements one by one", oneByOne, 4, 16, 1, false},
	{"sqlstore", together, 16, 16, 1, false},
	{"sqlstore, a snapshot is held", together, 4, 16, 1, true},
	{"a transaction for each start", plain, 4, 16, 2, false},
	{"sqlstore", together, 4, 16, 2, false},
	{"a transaction for each start", plain, 1, 1, 1, false},
	{"sqlstore", together, 1, 1, 1, false},
	{"sqlstore, statements one by one", oneByOne, 1, 1, 1, false},
	{"sqlstore", together, 1, 1, 2, false},
}

func (p *program) run(folder string, length time.Duration) error {
	server := mysqltest.StartIn(p, folder, "--innodb-log-file-size=96M")
	dsn := server.Database(p, "cost")
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	if err := errors.Join(sqlstore.CreateTable(ctx, db), createPlain(ctx, db)); err != nil {
		return err
	}
	sync, err := syncs(folder)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n%d processors, %s; a write of 512 bytes with fsync takes %v (half of them)\n", server.Version(), runtime.NumCPU(), runtime.Version(), sync)
	fmt.Printf("one budget, %v each; flush: innodb_flush_log_at_trx_commit\n\n", length)
	fmt.Printf("%-34s %9s %6s %14s %10s %10s %10s %12s\n", "", "callers", "flush", "starts/second", "half", "99 %", "longest", "commits/s")
	for _, m := range measures {
		if err := m.run(ctx, db, dsn, length); err != nil {
			return err
		}
	}
	return nil
}

// run makes a measurement and prints its line.
func (m *measure) run(ctx context.Context, db *sql.DB, dsn string, length time.Duration) error {
	if _, err := db.ExecContext(ctx, fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d; DELETE FROM throttle_rows", m.flush)); err != nil {
		return err
	}
	if m.held {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // it has changed nothing
		var rows int                         // a read begins the snapshot
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM throttle_rows").Scan(&rows); err != nil {
			return err
		}
	}
	all, err := crew.Muster(ctx, role, slices.Repeat([]orders{{m.way, dsn, m.callers, length}}, m.processes))
	if err != nil {
		return err
	}
	defer all.Kill()
	before, err := commits(ctx, db)
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
	after, err := commits(ctx, db)
	if err != nil {
		return err
	}
	slices.Sort(waits)
	part := func(p float64) time.Duration { return waits[int(p*float64(len(waits)-1))].Round(10 * time.Microsecond) }
	fmt.Printf("%-34s %4d × %2d %6d %14.0f %10v %10v %10v %12.0f\n", m.name, m.processes, m.callers, m.flush, float64(len(waits))/length.Seconds(),
		part(0.5), part(0.99), part(1), float64(after-before)/length.Seconds())
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
