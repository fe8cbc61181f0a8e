package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A scene is a fleet whose callers wait for one limit.
type scene struct {
	place              *place
	processes, callers int
	n                  int    // starts per second, or with slots requests in flight
	open               bool   // callers come at random, 1.2 times as many as the limit allows. Otherwise each comes again when it has started.
	slots              bool   // the first process takes all slots and keeps them
	fault              string // of the first process, in the middle of the run: "killed" or "stopped". "replaced": every 2 s the next one is killed and a new one starts.
}

// scenes returns the table of -waiting.
func scenes() (all []scene) {
	for _, p := range []*place{files, redis, postgres, mariaDB} {
		high := 1000
		if p == mariaDB {
			high = 200
		}

		all = append(all,
			scene{place: p, processes: 4, callers: 16, n: 40},
			scene{place: p, processes: 60, callers: 4, n: 40},
			scene{place: p, processes: 4, callers: 16, n: high},
			scene{place: p, processes: 4, callers: 16, n: high, open: true},
			scene{place: p, processes: 4, callers: 16, n: 40, fault: "killed"},
			scene{place: p, processes: 4, callers: 16, n: 40, fault: "stopped"},
			scene{place: p, processes: 4, callers: 16, n: 40, fault: "replaced"},
			scene{place: p, processes: 4, callers: 8, n: 8, slots: true, fault: "killed"},
		)
	}

	return all
}

func (s *scene) String() string {
	text := fmt.Sprintf("%s, %d × %d, %d/s", s.place.name, s.processes, s.callers, s.n)
	if s.slots {
		text = fmt.Sprintf("%s, %d × %d, %d slots", s.place.name, s.processes, s.callers, s.n)
	}
	if s.open {
		text += ", open load"
	}
	if s.fault != "" {
		text += ", " + s.fault
	}
	return text
}

// limiters opens the store of a place.
var limiters = map[string]func(at string) (throttle.Store, error){
	files.name: openFiles, redis.name: openRedis, postgres.name: openPostgres, mariaDB.name: openMySQL,
}

// roleOfWaiters is the role of processes that wait.
const roleOfWaiters = "waiters"

// waiterOrders are the orders of a process whose callers wait.
type waiterOrders struct {
	Place, At  string
	Callers, N int
	Open       float64       // how many callers come in a second; zero: each caller comes again when it has started
	Slots      bool          // N is a number of slots
	Keep       time.Duration // how long a caller keeps its slot
	Length     time.Duration
}

// A wait is the wait of a caller, from when it came to its start, in microseconds of the machine's clock.
type wait struct{ Came, Start int64 }

// sendEvery is how often a process tells its waits: a killed one does not tell its last.
const sendEvery = 50 * time.Millisecond

// waiters is a process whose callers wait.
func waiters(program *crew.Link) error {
	var o waiterOrders
	if err := program.Hear(&o); err != nil {
		return err
	}

	s, err := limiters[o.Place](o.At)
	if err != nil {
		return err
	}

	limit := throttle.PerSecond(o.N)
	if o.Slots {
		limit = throttle.Concurrency(o.N)
	}
	l, err := throttle.NewLimiter(s, throttle.Policy{Name: "one", Limit: limit})
	if err != nil {
		return err
	}

	var start string
	if err := errors.Join(program.Tell("ready"), program.Hear(&start)); err != nil {
		return err
	}

	// Not a deadline: a caller that cannot start before that is refused at once.
	ctx, stop := context.WithCancel(context.Background())
	defer time.AfterFunc(o.Length, stop).Stop()
	defer stop()
	w := &waitingProcess{limiter: l, keep: o.Keep, callers: o.Callers}
	var all sync.WaitGroup
	if o.Open > 0 {
		all.Go(func() { w.crowd(ctx, o.Open) })
	} else {
		for range o.Callers {
			all.Go(func() { w.loop(ctx) })
		}
	}

	for ctx.Err() == nil {
		time.Sleep(sendEvery)
		if err := w.send(program); err != nil {
			return err
		}
	}

	all.Wait()
	return errors.Join(w.failed, w.send(program), program.Tell([]wait{}))
}

// A waitingProcess has the waits of a process that it has not told yet.
type waitingProcess struct {
	limiter *throttle.Limiter
	keep    time.Duration
	callers int

	mu     sync.Mutex
	waits  []wait
	failed error
}

// send tells the program what it does not know yet, if anything.
func (w *waitingProcess) send(program *crew.Link) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.waits
	w.waits = nil
	if len(waits) == 0 {
		return nil
	}
	return program.Tell(waits)
}

// acquire is the wait of one caller.
func (w *waitingProcess) acquire(ctx context.Context) {
	came := time.Now()
	p, err := w.limiter.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1)
	started := time.Now()

	w.mu.Lock()
	switch {
	case err == nil:
		w.waits = append(w.waits, wait{came.UnixMicro(), started.UnixMicro()})
	case ctx.Err() == nil:
		w.failed = err
	}
	w.mu.Unlock()

	if err == nil && w.keep > 0 {
		select {
		case <-time.After(w.keep):
		case <-ctx.Done():
		}
		p.Release()
	}
}

// loop has a caller come again and again.
func (w *waitingProcess) loop(ctx context.Context) {
	for ctx.Err() == nil {
		w.acquire(ctx)
	}
}

// crowd has callers come at even distances.
func (w *waitingProcess) crowd(ctx context.Context, perSecond float64) {
	var all sync.WaitGroup
	defer all.Wait()

	for began, n := time.Now(), 1; ctx.Err() == nil; n++ {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))))
		all.Go(func() { w.acquire(ctx) })
	}
}

// A waited is a wait of a process.
type waited struct {
	wait
	process int
}

// A run is a scene that is measured.
type run struct {
	*scene
	length time.Duration

	at     int64 // when it began, in microseconds, when its fault was, and since when transactions are counted
	faulty int64

	counted int64

	mu    sync.Mutex
	waits []waited
	left  sync.WaitGroup
	fails []error
}

// settle is how long a scene has to get into step.
const settle = 2 * time.Second

// wait prints the table of -waiting.
func (o *options) wait(ctx context.Context, out io.Writer) error {
	all := slices.DeleteFunc(scenes(), func(s scene) bool { return !o.only.MatchString(s.String()) })
	if len(all) == 0 {
		return fmt.Errorf("no line of the table has a name that matches %v", o.only)
	}

	return bench.Run(o.dir, func(b *bench.Bench) {
		for i := range all {
			all[i].place.startOnce(ctx, b, o.dir, out)
		}

		fmt.Fprintf(out, "one budget, each line %v, of which the first %v are left out; used: of what the limit and its jitter allow; "+
			"passed: by how much a caller that came later, of a different process, started earlier\n", o.length, settle)
		for range o.runs {
			fmt.Fprintf(out, "\n%-58s %7s %9s %9s %9s %9s %7s %9s %9s\n", "", "used", "half", "99 %", "longest", "silence", "pairs", "passed", "trans.")
			for i := range all {
				r := &run{scene: &all[i], length: o.length}
				transactions := r.measure(ctx, b)
				fmt.Fprintf(out, "%-58s %s\n", r.scene, r.columns(transactions))
			}
		}
	})
}

// measure starts the processes, and returns how many transactions they made.
func (r *run) measure(ctx context.Context, b *bench.Bench) (transactions int) {
	p := r.place
	b.Must(p.empty(ctx))
	// The first process with slots takes all of them, and keeps them.
	all := make([]waiterOrders, r.processes)
	for i := range all {
		all[i] = r.orders(r.length)
		if r.slots && i == 0 {
			all[i].Callers, all[i].Keep = r.n, time.Hour
		}
	}

	members, err := crew.Muster(ctx, roleOfWaiters, all)
	b.Must(err)
	defer func() { members.Kill() }()
	r.at = time.Now().UnixMicro()

	for i, m := range members {
		b.Must(m.Tell("go"))
		r.hear(i, m)
		if r.slots && i == 0 {
			time.Sleep(settle / 2)
		}
	}

	// What it costs to connect is left out.
	time.Sleep(settle / 2)
	before := p.transactions(ctx, b)
	r.counted = time.Now().UnixMicro()

	switch r.fault {
	case "killed", "stopped":
		time.Sleep(time.Until(time.UnixMicro(r.at).Add(r.length / 2)))
		r.faulty = time.Now().UnixMicro()
		if r.fault == "killed" {
			members[0].Kill()
		} else {
			b.Must(members[0].Signal(redistest.PauseSignal))
			defer r.left.Wait()
			time.Sleep(r.length/2 + time.Second)
			members[0].Kill()
		}

	case "replaced":
		for n := 0; ; n++ {
			left := r.length - time.Since(time.UnixMicro(r.at))
			if left < 2*settle {
				break
			}
			time.Sleep(settle)

			m, err := crew.Start(ctx, roleOfWaiters, r.orders(left-settle))
			b.Must(err)
			var ready string
			b.Must(errors.Join(m.Hear(&ready), m.Tell("go")))
			members[n%r.processes].Kill()
			members[n%r.processes] = m
			r.hear(r.processes+n, m)
		}
	}

	r.left.Wait()
	b.Must(errors.Join(r.fails...))
	return p.transactions(ctx, b) - before
}

// orders are those of one process.
func (r *run) orders(length time.Duration) waiterOrders {
	o := waiterOrders{Place: r.place.name, At: r.place.at, Callers: r.callers, N: r.n, Slots: r.slots, Length: length}
	if r.slots {
		o.Keep = 100 * time.Millisecond
	}
	if r.open {
		o.Open = 1.2 * float64(r.n) / float64(r.processes)
	}
	return o
}

// hear takes in what a process tells, until it ends.
func (r *run) hear(process int, m *crew.Member) {
	r.left.Go(func() {
		for {
			var waits []wait
			err := m.Hear(&waits)
			r.mu.Lock()
			for _, w := range waits {
				r.waits = append(r.waits, waited{w, process})
			}
			if err != nil && r.fault == "" {
				r.fails = append(r.fails, err)
			}
			r.mu.Unlock()
			if err != nil || len(waits) == 0 {
				return
			}
		}
	})
}

// columns returns the figures of a run as columns of the table: the used share of the limit, quantiles of the waits, the
// longest silence, callers served out of order, and transactions for a start.
func (r *run) columns(transactions int) string {
	slices.SortFunc(r.waits, func(a, b waited) int { return int(a.Start - b.Start) })
	from, to := max(r.at+settle.Microseconds(), r.faulty), r.at+r.length.Microseconds()
	all := slices.DeleteFunc(slices.Clone(r.waits), func(w waited) bool {
		return w.Start < from || w.Start > to || w.process == 0 && r.faulty > 0
	})
	if len(all) == 0 {
		return "nobody has started"
	}

	took := make(times)
	silence, last := int64(0), from
	for _, w := range all {
		took.add(time.Duration(w.Start-w.Came) * time.Microsecond)
		silence, last = max(silence, w.Start-last), w.Start
	}
	silence = max(silence, to-last)

	used := "-"
	if !r.slots {
		const jitter = 1.035
		used = fmt.Sprintf("%.1f %%", 100*float64(len(all))*jitter/(float64(r.n)*float64(to-from)/1e6))
	}

	share, passed := r.order(all)
	text := fmt.Sprintf("%7s", used)
	for _, d := range []time.Duration{took.quantile(0.5), took.quantile(0.99), took.quantile(1), time.Duration(silence) * time.Microsecond} {
		text += fmt.Sprintf(" %9v", d.Round(time.Millisecond))
	}

	text += fmt.Sprintf(" %5.1f %% %9v", 100*share, passed.Round(time.Millisecond))
	if transactions == 0 {
		return text + fmt.Sprintf(" %9s", "-")
	}
	starts := slices.IndexFunc(r.waits, func(w waited) bool { return w.Start >= r.counted })
	return text + fmt.Sprintf(" %9.2f", float64(transactions)/float64(len(r.waits)-starts))
}

// order compares callers of different processes that started within a second: the share of the pairs in which the caller that came a
// millisecond later, or more, has started earlier, and by how much one was passed at the most.
func (r *run) order(all []waited) (wrong float64, passed time.Duration) {
	pairs, bad := 0, 0
	for i, a := range all {
		for _, b := range all[i+1:] {
			if b.Start-a.Start > 1_000_000 {
				break
			}
			if a.process == b.process {
				continue
			}

			pairs++
			if a.Came > b.Came+1000 {
				bad++
				passed = max(passed, time.Duration(a.Came-b.Came)*time.Microsecond)
			}
		}
	}

	return float64(bad) / float64(max(1, pairs)), passed
}
