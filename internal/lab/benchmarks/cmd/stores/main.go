// Command stores measures the cost of a start in each store, and in the limiters of other people beside them, in one run on one machine:
//
//	cd internal/lab/benchmarks && go run ./cmd/stores -for 4s
//	cd internal/lab/benchmarks && go run ./cmd/stores -for 4s -runs 2 -only '^pgstore|PostgreSQL'
//
// In each line of its table the named number of processes, with the named number of callers each, take starts of one budget that has room for all of them, as
// fast as they go. The command starts the servers and stops them in the end. Their files are in a folder on a disk, so that a commit costs
// the cost there.
//
// With -waiting it measures callers that wait, where processes are killed and stopped, too:
//
//	cd internal/lab/benchmarks && go run ./cmd/stores -waiting -for 12s -only 'PostgreSQL'
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/filestore"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

func main() {
	// A process that was started as a member ends in Main.
	crew.Main(role, member)
	crew.Main(roleOfWaiters, waiters)

	o := options{only: new(regexp.Regexp)}
	flag.DurationVar(&o.length, "for", 4*time.Second, "how long each line is measured")
	flag.IntVar(&o.runs, "runs", 1, "how many times all lines are measured")
	flag.TextVar(o.only, "only", regexp.MustCompile(""), "measure only the lines whose names match this regular `expression`")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "a `folder` for the files of servers: on a disk, not in memory")
	ofWaiters := flag.Bool("waiting", false, "measure callers that wait")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	measure := (*options).measure
	if *ofWaiters {
		measure = (*options).wait
	}
	if err := measure(&o, ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	length time.Duration
	runs   int
	only   *regexp.Regexp
	dir    string
}

// measure starts the servers of the chosen lines and prints the table, as often as -runs says. It is an error if -only
// chooses no line.
func (o *options) measure(ctx context.Context, out io.Writer) error {
	all := slices.DeleteFunc(table(), func(l line) bool { return !o.only.MatchString(l.name()) })
	if len(all) == 0 {
		return fmt.Errorf("no line of the table has a name that matches %v", o.only)
	}

	return bench.Run(o.dir, func(b *bench.Bench) {
		fsync, err := syncs(o.dir)
		b.Must(err)
		fmt.Fprintf(out, "%s %s/%s, %d processors; a write of 512 bytes with fsync takes %v (half of them)\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), fsync)

		for _, l := range all {
			l.way.place.startOnce(ctx, b, o.dir, out)
		}

		fmt.Fprintf(out, "one budget, each line %v; shares: the smallest and the largest part of a process, of the mean\n", o.length)
		for range o.runs {
			fmt.Fprintf(out, "\n%-46s %9s %9s %9s %9s %9s %9s   %s\n", "", "callers", "starts/s", "half", "99 %", "99.9 %", "longest", "shares")
			for _, l := range all {
				fmt.Fprintf(out, "%-46s %9s %v\n", l.name(), fmt.Sprintf("%d × %d", l.processes, l.callers), l.measure(ctx, b, o.length))
			}
		}
	})
}

// syncs returns how long a write of 512 bytes with fsync takes in a folder: the median of 500.
func syncs(dir string) (median time.Duration, err error) {
	f, err := os.CreateTemp(dir, "stores")
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	took := make(times)
	for range 500 {
		began := time.Now()
		_, err := f.Write(make([]byte, 512))
		if err := cmp.Or(err, f.Sync()); err != nil {
			return 0, err
		}

		took.add(time.Since(began))
	}

	return took.quantile(0.5), nil
}

// A taker takes a start.
type taker func(context.Context) error

func openMemory(string) (throttle.Store, error)       { return memstore.New(), nil }
func openFiles(dir string) (throttle.Store, error)    { return filestore.New(dir, filestore.Options{}) }
func openPostgres(url string) (throttle.Store, error) { return pgstore.New(url, pgstore.Options{}) }

func openRedis(addr string) (throttle.Store, error) {
	return redisstore.New(goredis.NewClient(&goredis.Options{Addr: addr}), redisstore.Options{}), nil
}

func openMySQL(dsn string) (throttle.Store, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	return sqlstore.New(db, sqlstore.Options{})
}

// plenty is a limit for each second that is never reached.
const plenty = 100_000_000

// from turns a function that opens a store into a function that opens the store and returns a taker of its starts.
func from(open func(at string) (throttle.Store, error)) func(string) (taker, error) {
	// All callers share one budget that is never full, so that the way to the store is measured, and no wait for a limit.
	b := store.Booking{MaxWait: store.AnyWait, Horizon: time.Second, Charges: []store.Charge{{
		Budget: throttle.Budget{Policy: "one", Key: [16]byte{1}}, Limit: throttle.PerSecond(plenty), Cost: 1, Jitter: 35 * time.Millisecond,
	}}}
	return func(at string) (taker, error) {
		s, err := open(at)
		return func(ctx context.Context) error {
			g, err := s.Book(ctx, &b)
			if err == nil && !g.OK {
				err = fmt.Errorf("no start: %+v", g)
			}
			return err
		}, err
	}
}

const role = "stores"

// orders are the orders of a process.
type orders struct {
	Way, At string
	Callers int
	Length  time.Duration
}

// member is a process that takes starts, and tells in the end how long they took.
func member(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}

	take, err := wayNamed(o.Way).open(o.At)
	if err != nil {
		return err
	}

	// One start for each caller makes the connections, which would count otherwise.
	if _, err := takeAll(take, o.Callers, 0); err != nil {
		return err
	}

	// All processes begin together, when the last is ready.
	var start string
	if err := errors.Join(program.Tell("ready"), program.Hear(&start)); err != nil {
		return err
	}

	all, err := takeAll(take, o.Callers, o.Length)
	if err != nil {
		return err
	}

	// Send a histogram: the times themselves may be millions.
	took := make(times)
	for _, d := range all {
		took.add(d)
	}

	return program.Tell(took)
}

// takeAll has each caller take a start, and further starts until the time is over or one fails. It returns how long each
// start took.
func takeAll(take taker, callers int, length time.Duration) ([]time.Duration, error) {
	var all sync.WaitGroup
	took, errs := make([][]time.Duration, callers), make([]error, callers)

	end := time.Now().Add(length)
	for i := range callers {
		all.Go(func() {
			for began := time.Now(); errs[i] == nil; {
				errs[i] = take(context.Background())
				now := time.Now()
				took[i] = append(took[i], now.Sub(began))
				if !now.Before(end) {
					return
				}
				began = now
			}
		})
	}

	all.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}
