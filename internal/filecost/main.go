//go:build linux || darwin

// Command filecost measures what a start costs in a filestore: so many processes with so
// many callers each acquire starts of one budget that has room for all of them.
//
//	go run ./internal/filecost -processes 4 -callers 16 -for 5s
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/filestore"
	"github.com/fleetthrottle/throttle/internal/crew"
)

const role = "filecost"

// Orders are those of a process.
type orders struct {
	Dir     string
	Callers int
	Length  time.Duration
}

// A result is what a process has seen.
type result struct {
	Starts int
	Waits  [4]time.Duration // of the median, 99 and 99.9 % and all
	Busy   time.Duration    // of processors
}

func main() {
	crew.Main(role, member)
	processes := flag.Int("processes", 4, "how many processes")
	callers := flag.Int("callers", 16, "how many callers each has")
	length := flag.Duration("for", 5*time.Second, "for how long")
	dir := flag.String("dir", "", "where; empty: a new directory")
	flag.Parse()
	if err := run(*processes, *callers, *length, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "filecost:", err)
		os.Exit(1)
	}
}

func run(processes, callers int, length time.Duration, dir string) error {
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "filecost"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	all, err := crew.Muster(context.Background(), role, slices.Repeat([]orders{{dir, callers, length}}, processes))
	if err != nil {
		return err
	}
	defer all.Kill()
	for _, m := range all {
		if err := m.Tell("go"); err != nil {
			return err
		}
	}
	total, worst, busy := 0, time.Duration(0), time.Duration(0)
	fmt.Printf("%d processes with %d callers each, one budget, %v\n", processes, callers, length)
	for i, m := range all {
		var r result
		if err := m.Hear(&r); err != nil {
			return err
		}
		total += r.Starts
		busy += r.Busy
		worst = max(worst, r.Waits[3])
		fmt.Printf("  process %d: %9d starts, a start takes %v (half), %v (99%%), %v (99.9%%), %v (all)\n",
			i+1, r.Starts, r.Waits[0], r.Waits[1], r.Waits[2], r.Waits[3])
	}
	fmt.Printf("  all: %.0f starts a second, the longest call took %v, %v of processor time for a start\n",
		float64(total)/length.Seconds(), worst, busy/time.Duration(total))
	return nil
}

// member acquires starts.
func member(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}
	s, err := filestore.Open(o.Dir)
	if err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	var start string
	if err := program.Hear(&start); err != nil {
		return err
	}
	b := throttle.Booking{MaxWait: throttle.AnyWait, Horizon: time.Second, Charges: []throttle.Charge{{
		Budget: throttle.Budget{Policy: "one", Key: [16]byte{1}}, Limit: throttle.PerSecond(100_000_000), Cost: 1, Jitter: throttle.DefaultJitter,
	}}}
	var wg sync.WaitGroup
	waits := make([][]time.Duration, o.Callers)
	errs := make([]error, o.Callers)
	before := busy()
	end := time.Now().Add(o.Length)
	for i := range o.Callers {
		wg.Go(func() {
			for {
				began := time.Now()
				if began.After(end) {
					return
				}
				if _, errs[i] = s.Book(context.Background(), &b); errs[i] != nil {
					return
				}
				waits[i] = append(waits[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	all := slices.Concat(waits...)
	slices.Sort(all)
	r := result{Starts: len(all), Busy: busy() - before}
	for i, part := range []float64{0.5, 0.99, 0.999, 1} {
		r.Waits[i] = all[int(part*float64(len(all)-1))]
	}
	return program.Tell(r)
}

// busy is how long processors have worked for this process.
func busy() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // there is no such error
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
