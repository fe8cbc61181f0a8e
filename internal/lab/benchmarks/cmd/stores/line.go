package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx; sqlstore has mysql

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/mysqltest"
	"github.com/fleetthrottle/throttle/internal/lab/pgtest"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// A line is a line of the table.
type line struct {
	way                way
	processes, callers int
	held               bool // a foreign session reads a snapshot of the tables all the time
}

// table returns all lines: of four processes, of sixteen, of four beside a snapshot that a foreign session reads, and of
// one caller.
func table() (all []line) {
	for _, w := range ways {
		all = append(all, w.line(4, 16))
	}

	for _, w := range ways {
		if w.shared {
			all = append(all, w.line(16, 16))
		}
	}

	for _, w := range ways {
		if w.shared && (w.place == postgres || w.place == mariaDB) {
			all = append(all, line{w, 4, 16, true})
		}
	}

	for _, w := range ways {
		all = append(all, w.line(1, 1))
	}

	return all
}

// line returns a line with that many processes and callers in each. Processes cannot share memory, so its line has one
// process with all the callers.
func (w way) line(processes, callers int) line {
	if w.place == memory {
		return line{w, 1, processes * callers, false}
	}
	return line{w, processes, callers, false}
}

func (l line) name() string {
	if l.held {
		return l.way.name + ", a snapshot is held"
	}
	return l.way.name
}

// measure empties the line's place, has the line's processes take starts for a time, and returns their results together.
func (l line) measure(ctx context.Context, b *bench.Bench, length time.Duration) *result {
	p := l.way.place
	b.Must(p.empty(ctx))

	if l.held {
		end := p.hold(ctx, b)
		defer func() { b.Must(end()) }()
	}

	all, err := crew.Muster(ctx, role, slices.Repeat([]orders{{l.way.name, p.at, l.callers, length}}, l.processes))
	b.Must(err)
	defer all.Kill()
	b.Must(all.Tell("go"))

	r := &result{length: length, took: make(times)}
	for _, m := range all {
		took := make(times)
		b.Must(m.Hear(&took))
		r.starts = append(r.starts, took.count())
		r.took.merge(took)
	}

	return r
}

// A result sums up the processes of a line.
type result struct {
	length time.Duration
	took   times
	starts []int // of each process
}

// String returns the result's columns of the table. The last, for several processes, has the fewest and the most starts
// of a process in percent of the mean.
func (r *result) String() string {
	all := float64(r.took.count())
	text := fmt.Sprintf("%9.0f", all/r.length.Seconds())
	for _, share := range []float64{0.5, 0.99, 0.999, 1} {
		text += fmt.Sprintf(" %9v", r.took.quantile(share))
	}
	if len(r.starts) == 1 {
		return text
	}
	percent := func(starts int) float64 { return 100 * float64(starts*len(r.starts)) / all }
	return text + fmt.Sprintf("   %.0f–%.0f %%", percent(slices.Min(r.starts)), percent(slices.Max(r.starts)))
}

// A scene is a fleet whose callers wait for one limit.
type scene struct {
	place              *place
	processes, callers int
	n                  int    // starts per second, or with slots requests in flight
	open               bool   // callers come at even distances, 1.2 times as many as the limit allows. Otherwise each comes again when it has started.
	slots              bool   // the first process takes all slots and keeps them
	fault              string // of the first process, in the middle of the run: "killed" or "stopped". "replaced": every 2 s the next one is killed and a new one starts.
	far                bool   // the server is farAway
}

// farAway is the round trip to a server that is far away.
const farAway = 40 * time.Millisecond

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

		// Files are never far away.
		if p != files {
			all = append(all, scene{place: p, processes: 4, callers: 16, n: 40, far: true}, scene{place: p, processes: 16, callers: 4, n: 40, far: true})
		}
	}

	return all
}

// String names the scene in the table.
func (s *scene) String() string {
	text := fmt.Sprintf("%s, %d × %d, %d/s", s.place.name, s.processes, s.callers, s.n)
	if s.slots {
		text = fmt.Sprintf("%s, %d × %d, %d slots", s.place.name, s.processes, s.callers, s.n)
	}
	if s.open {
		text += ", open load"
	}
	if s.far {
		text += fmt.Sprintf(", %v away", farAway)
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

// waiters is a process whose callers wait. It sends new waits every sendEvery, and an empty list in the end. It returns an
// error if a caller fails.
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

	// End the load by a cancellation: with a deadline a caller that cannot start in time would be refused at once.
	ctx, stop := context.WithCancel(context.Background())
	defer time.AfterFunc(o.Length, stop).Stop()
	defer stop()
	w := &waitingProcess{limiter: l, keep: o.Keep}
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
	keep    time.Duration // how long a caller keeps its slot, or 0 for no slot

	mu     sync.Mutex
	waits  []wait
	failed error // of the caller that failed last
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

// acquire waits for a start, and notes the wait, or the failure unless ctx has ended. It keeps a slot for w.keep.
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

// crowd has callers come at even distances until ctx ends, and returns when all have left.
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

	// In microseconds.
	at      int64 // when it began
	faulty  int64 // when its fault was, or 0 before
	counted int64 // since when transactions are counted

	mu    sync.Mutex
	waits []waited
	left  sync.WaitGroup
	fails []error
}

// settle is how long a scene has to get into step.
const settle = 2 * time.Second

// wait starts the servers of the chosen scenes and prints the table of -waiting, as often as -runs says. It is an error if
// -only chooses no scene.
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

// measure starts the processes, has the fault happen, and collects the waits. It returns how many transactions the server
// made for processes that had connected.
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
	defer members.Kill() // also those that replace others
	r.at = time.Now().UnixMicro()

	for i, m := range members {
		b.Must(m.Tell("go"))
		r.hear(i, m)
		if r.slots && i == 0 {
			time.Sleep(settle / 2) // until the first process has all slots
		}
	}

	// Leave out the transactions with which processes connect.
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
			// The process stays stopped until the run is over, and must be ended then.
			b.Must(members[0].Pause())
			time.Sleep(r.length/2 + time.Second)
			members[0].Kill()
		}

	case "replaced":
		// Replace one process after the other, as long as the new one has time to get into step.
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

// orders returns the orders of one process.
func (r *run) orders(length time.Duration) waiterOrders {
	o := waiterOrders{Place: r.place.name, At: r.place.at, Callers: r.callers, N: r.n, Slots: r.slots, Length: length}
	if r.far {
		o.At = r.place.atFar
	}
	if r.slots {
		o.Keep = 100 * time.Millisecond
	}
	if r.open {
		o.Open = 1.2 * float64(r.n) / float64(r.processes)
	}
	return o
}

// hear notes, in a goroutine of its own, the waits that a process sends. The last list of a process is empty. In a scene with a fault the process may be
// gone before that.
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

// columns sorts the waits, and returns the figures of a run as columns of the table: the used share of the limit,
// quantiles of the waits, the longest silence, callers served out of order, and transactions for a start. After a fault
// only the time after it counts, without the process that it hit.
func (r *run) columns(transactions int) string {
	slices.SortFunc(r.waits, func(a, b waited) int { return int(a.Start - b.Start) })
	begin, end := max(r.at+settle.Microseconds(), r.faulty), r.at+r.length.Microseconds()
	all := slices.DeleteFunc(slices.Clone(r.waits), func(w waited) bool {
		return w.Start < begin || w.Start > end || w.process == 0 && r.faulty > 0
	})
	if len(all) == 0 {
		return "nobody has started"
	}

	took := make(times)
	silence, last := int64(0), begin
	for _, w := range all {
		took.add(time.Duration(w.Start-w.Came) * time.Microsecond)
		silence, last = max(silence, w.Start-last), w.Start
	}
	silence = max(silence, end-last)

	used := "-"
	if !r.slots {
		const jitter = 1.035 // a window of a second lasts for the default jitter of 35 ms more
		used = fmt.Sprintf("%.1f %%", 100*float64(len(all))*jitter/(float64(r.n)*float64(end-begin)/1e6))
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
	firstCounted := slices.IndexFunc(r.waits, func(w waited) bool { return w.Start >= r.counted })
	return text + fmt.Sprintf(" %9.2f", float64(transactions)/float64(len(r.waits)-firstCounted))
}

// order looks at the pairs of callers of different processes that started within a second of each other. It returns the
// share of the pairs that were served out of order, because the caller that came more than a millisecond later started
// first, and the longest time by which such a caller came later. all is in the order of starts.
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

// A place is where budgets lie.
type place struct {
	name  string
	start func(*place, context.Context, *bench.Bench, string)
	args  []string // of the server
	// What start sets:
	at, version string
	addr, atFar string                                                 // the server's address, and at with the address of a wire to the server
	empty       func(context.Context) error                            // makes the place as it was in the beginning
	hold        func(context.Context, *bench.Bench) (end func() error) // begins to read a snapshot
	count       func(context.Context) (int, error)                     // counts the server's transactions and reads. It is nil for places without transactions.
}

// startOnce starts what the place needs, unless it runs, and prints its version. A server also gets a wire that makes it
// seem far away.
func (p *place) startOnce(ctx context.Context, b *bench.Bench, dir string, out io.Writer) {
	if p.empty != nil {
		return // start sets it
	}
	p.start(p, ctx, b, dir)
	if p.addr != "" {
		w := redistest.NewWire(b, p.addr)
		w.Delay(farAway/2, farAway/2)
		p.atFar = strings.Replace(p.at, p.addr, w.Addr, 1)
	}
	b.Cleanup(func() { p.empty = nil })
	fmt.Fprintf(out, "%s: %s\n", p.name, p.version)
}

// transactions returns how many transactions and reads the server has made, 0 if it counts none.
func (p *place) transactions(ctx context.Context, b *bench.Bench) int {
	if p.count == nil {
		return 0
	}
	n, err := p.count(ctx)
	b.Must(err)
	return n
}

var (
	memory    = &place{name: "memory", start: startMemory}
	files     = &place{name: "files", start: startFiles}
	redis     = &place{name: "Redis, no file", start: startRedis}
	redisFile = &place{name: "Redis, appendfsync always", start: startRedis, args: []string{"--appendonly", "yes", "--appendfsync", "always"}}
	postgres  = &place{name: "PostgreSQL, fsync on", start: startPostgres, args: []string{"fsync=on", "shared_buffers=128MB", "max_connections=400"}}
	mariaDB   = &place{name: "MariaDB, flush 1", start: startMariaDB, args: []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=96M", "--max-connections=400"}}
	mariaDB2  = &place{name: "MariaDB, flush 2", start: startMariaDB, args: []string{"--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=96M"}}
)

func startMemory(p *place, _ context.Context, _ *bench.Bench, _ string) {
	p.version, p.empty = "of one process", func(context.Context) error { return nil }
}

func startFiles(p *place, _ context.Context, b *bench.Bench, dir string) {
	p.at, p.version = b.TempDir(), "in "+dir
	p.empty = func(context.Context) error { return errors.Join(os.RemoveAll(p.at), os.Mkdir(p.at, 0o755)) }
}

// startRedis starts a Redis, which is emptied by FLUSHALL. The calls of its scripts count as transactions.
func startRedis(p *place, ctx context.Context, b *bench.Bench, _ string) {
	s := redistest.Single(b, p.args...)
	c := s.Client(b)
	p.at, p.addr, p.version = s.Addr, s.Addr, c.InfoMap(ctx, "server").Item("Server", "redis_version")
	p.empty = func(ctx context.Context) error { return c.FlushAll(ctx).Err() }
	p.count = func(ctx context.Context) (n int, err error) {
		stats, err := c.Info(ctx, "commandstats").Result()
		for line := range strings.Lines(stats) {
			if calls, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
				_, err = fmt.Sscanf(calls, "%d", &n)
			}
		}
		return n, err
	}
}

// startPostgres starts a PostgreSQL, which counts its transactions itself.
func startPostgres(p *place, ctx context.Context, b *bench.Bench, dir string) {
	s := pgtest.StartIn(b, dir, p.args...)
	p.at, p.addr = s.URL(), s.Addr()
	p.useSQL(ctx, b, "pgx", "DROP SCHEMA IF EXISTS throttle CASCADE; "+createBucket("bytea"), "throttle.budgets",
		func(ctx context.Context, _ *sql.DB) error { return pgstore.Setup(ctx, p.at, pgstore.Options{}) },
		func(ctx context.Context, db *sql.DB) (n int, err error) {
			time.Sleep(1500 * time.Millisecond) // a session tells its statistics a second late
			err = db.QueryRowContext(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
			return n, err
		})
}

// startMariaDB starts a MariaDB, whose transactions and reads follow from its counts of statements.
func startMariaDB(p *place, ctx context.Context, b *bench.Bench, dir string) {
	s := mysqltest.StartIn(b, dir, p.args...)
	p.at, p.addr = s.Database(b, "stores"), s.Addr()
	p.useSQL(ctx, b, "mysql", "DROP TABLE IF EXISTS throttle_rows; "+createBucket("VARBINARY(400)"), "throttle_rows", sqlstore.CreateTable,
		func(ctx context.Context, db *sql.DB) (n int, err error) {
			// A transaction selects twice and a read once, so all selects less the transactions count both.
			err = db.QueryRowContext(ctx, "SELECT MAX(IF(variable_name = 'Com_select', variable_value, 0)) - MAX(IF(variable_name = 'Com_begin', variable_value, 0)) "+
				"FROM information_schema.global_status WHERE variable_name IN ('Com_select', 'Com_begin')").Scan(&n)
			return n, err
		})
}

// useSQL sets how a database is emptied, held and counted, and its version. empty is the SQL that removes the tables, and
// create makes the store's table again. hold reads that table, budgets.
func (p *place) useSQL(ctx context.Context, b *bench.Bench, driver, empty, budgets string, create func(context.Context, *sql.DB) error,
	count func(context.Context, *sql.DB) (int, error),
) {
	db, err := sql.Open(driver, p.at)
	b.Must(err)
	b.Cleanup(func() { _ = db.Close() }) // the server ends as well
	b.Must(db.QueryRowContext(ctx, "SELECT version()").Scan(&p.version))
	p.empty = func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, empty)
		return errors.Join(err, create(ctx, db))
	}

	p.count = func(ctx context.Context) (int, error) { return count(ctx, db) }
	p.hold = func(ctx context.Context, b *bench.Bench) func() error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		b.Must(err)
		var rows int // a read begins the snapshot
		b.Must(tx.QueryRowContext(ctx, "SELECT count(*) FROM "+budgets).Scan(&rows))
		return tx.Rollback
	}
}
