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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

func main() {
	crew.Main(role, member)
	crew.Main(roleOfWaiters, waiters)
	o := options{only: new(regexp.Regexp)}
	flag.DurationVar(&o.length, "for", 4*time.Second, "how long each line is measured")
	flag.IntVar(&o.runs, "runs", 1, "how often all lines are measured")
	flag.TextVar(o.only, "only", regexp.MustCompile(""), "measure only the lines whose names match this regular `expression`")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "a `folder` for the files of servers: on a disk, not in memory")
	isWaiting := flag.Bool("waiting", false, "measure callers that wait")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	measure := (*options).measure
	if *isWaiting {
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

// measure prints the table.
func (o *options) measure(ctx context.Context, out io.Writer) error {
	all := slices.DeleteFunc(table(), func(l line) bool { return !o.only.MatchString(l.name()) })
	if len(all) == 0 {
		return fmt.Errorf("no line of the table has a name that matches %v", o.only)
	}

	return bench.Run(o.dir, func(b *bench.Bench) {
		sync, err := syncs(o.dir)
		b.Must(err)
		fmt.Fprintf(out, "%s %s/%s, %d processors; a write of 512 bytes with fsync takes %v (half of them)\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), sync)

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

// syncs measures how long a write with fsync takes.
func syncs(dir string) (half time.Duration, err error) {
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
