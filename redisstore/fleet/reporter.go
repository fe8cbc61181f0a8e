package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
	"github.com/redis/go-redis/v9"
)

// DefaultInterval is the default of [ReporterOptions.Interval].
const DefaultInterval = 5 * time.Second

const (
	keepRecord = 10 * time.Minute // how long a record outlives the last report
	farewell   = time.Second      // bounds Close, what a report asks the store about closings, and the call by which a failed pause takes its note back
)

//go:embed beat.lua
var beatSource string

var beatScript = wire.FromSource(beatSource)

// ReporterOptions configure a [Reporter]. The zero value of each field is its
// default.
type ReporterOptions struct {
	// Namespace must equal the namespace of the store. For a redisstore.Store a
	// different one is refused. Defaults to the namespace of the
	// redisstore.Store, or to redisstore.DefaultNamespace around further
	// stores.
	Namespace string

	// Program is the displayed name of the program: at most 200 characters,
	// with control characters escaped. Defaults to the name of the executable.
	Program string

	// Interval is the time between two reports, at least 10 ms. Defaults to
	// [DefaultInterval].
	Interval time.Duration
}

// Reporter is a [store.Store] that wraps a store, reports the program to the
// fleet, and adds notes of operators' pauses to the program's errors. It is
// safe for concurrent use. Create it with [Start].
type Reporter struct {
	store.Store // the wrapped store

	client  redis.UniversalClient
	conn    *conn.Conn
	keys    keys
	id      string
	program string
	every   time.Duration
	begun   time.Time

	uses   uses
	waits  waits
	notes  notes
	pulled pulled
	off    reporterSwitch
	stop   context.CancelFunc
	ends   sync.Once     // by Close
	done   chan struct{} // closed when the goroutine has ended

	mu   sync.Mutex
	file func() FileState
	err  error

	reporting    sync.Mutex
	last, before time.Time // ends of the last two intervals of counting
}

// A pulled is the pushed file that a reporter read last.
type pulled struct {
	mu   sync.Mutex
	id   string // of the push
	text []byte
}

// Start wraps a store in a reporter, which reports until [Reporter.Close]. It
// does not wait for Redis: if Redis is away, reports follow later. The caller
// keeps ownership of client. The error joins a *[store.OptionError] for each
// mistake, and nothing is started.
func Start(client redis.UniversalClient, store store.Store, o ReporterOptions) (*Reporter, error) {
	if err := checkReporter(client, store, &o); err != nil {
		return nil, err
	}

	// The store knows its namespace. checkReporter has refused a different one.
	if s, ok := store.(namespaced); ok {
		o.Namespace = s.Namespace()
	}

	id := make([]byte, 9)
	rand.Read(id) // never fails
	ctx, stop := context.WithCancel(context.Background())
	r := &Reporter{
		Store: store, client: client, conn: conn.New(client), keys: keysOf(o.Namespace),
		id: base64.RawURLEncoding.EncodeToString(id), program: Clean(cmp.Or(o.Program, filepath.Base(os.Args[0])), longestName),
		every: cmp.Or(o.Interval, DefaultInterval), begun: time.Now(),
		stop: stop, done: make(chan struct{}), err: errors.New("fleet: nothing has been reported yet"),
	}

	r.last, r.before = r.begun, r.begun
	r.notes.wake = make(chan struct{}, 1)
	r.off.begin()

	// Ask for the notes when the store announces a pause: waiting callers learn the operator's reason before the next tick.
	if s, ok := store.(pauseTeller); ok {
		s.OnPause(func() { r.notes.ask() })
	}

	go r.run(ctx)
	return r, nil
}

// namespaced is a store that knows the namespace of its budgets: a redisstore.Store.
type namespaced interface{ Namespace() string }

// leastInterval is the shortest Interval: each report is a call.
const leastInterval = 10 * time.Millisecond

// checkReporter returns all mistakes in the arguments of [Start], joined, or nil. around is the store that the reporter is around.
func checkReporter(client redis.UniversalClient, around store.Store, o *ReporterOptions) error {
	// Namespace and client are checked as for a store.
	mistakes := []error{redisstore.New(client, redisstore.Options{Namespace: o.Namespace}).Traits().Err}
	mistake := func(option, problem string) {
		mistakes = append(mistakes, &store.OptionError{Package: "fleet", Option: option, Problem: problem})
	}

	if around == nil {
		mistake("store", "is nil: give the store that the reporter is around")
	} else if err := around.Traits().Err; err != nil {
		mistakes = append(mistakes, err)
	}

	if around != nil && around.Traits().Switch != nil {
		mistake("store", "has a Switch: leave store.WithSwitch out, and use the Traits().Switch of the reporter")
	}
	if s, ok := around.(namespaced); ok && o.Namespace != "" && o.Namespace != s.Namespace() {
		mistake("ReporterOptions.Namespace", fmt.Sprintf("%q is not that of the store, %q: leave it out", o.Namespace, s.Namespace()))
	}
	if o.Interval != 0 && o.Interval < leastInterval {
		mistake("ReporterOptions.Interval", fmt.Sprintf("%v is too short: use %v or more, or 0 for %v", o.Interval, leastInterval, DefaultInterval))
	}

	return errors.Join(mistakes...)
}

// A pauseTeller is a store that announces that a budget was closed or opened: a redisstore.Store. Behind
// further stores, waiting callers learn a reason with the next report.
type pauseTeller interface{ OnPause(tell func()) }

// Close ends the reports and removes the program from the fleet. If Redis is
// away, the record expires after ten minutes. The wrapped store continues to
// work. Close waits for at most a second. Further calls do nothing.
func (r *Reporter) Close() { r.ends.Do(r.close) }

// close is the first call of Close.
func (r *Reporter) close() {
	r.stop()

	// Take the callback away: the store outlives the reporter.
	if s, ok := r.Store.(pauseTeller); ok {
		s.OnPause(nil)
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()

	// Wait until the program is removed. Redis may be away, and a program that ends must not wait long for it.
	select {
	case <-r.done:
	case <-timer.C:
	}
}

// ID returns the displayed id of the program.
func (r *Reporter) ID() string { return r.id }

// Err returns why the last report failed, or why the program may not or cannot read whether an
// operator has turned throttle off, or nil. Before the first report it returns an error, too.
func (r *Reporter) Err() error {
	r.off.mu.Lock()
	err := r.off.err
	r.off.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.err, err)
}

// Traits implements [store.Store]. The Switch is turned by the operators of the fleet.
func (r *Reporter) Traits() store.Traits {
	t := r.Store.Traits()
	t.Switch = &r.off.Switch
	return t
}

// Book implements [store.Store].
func (r *Reporter) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	replaces, id := b.Instead.Start != 0, waiterID(b.Instead, b.Turn)
	g, err := r.Store.Book(ctx, b)

	// The caller has left its line, whatever the outcome. held puts it back if it continues to wait.
	was, waited := r.waits.end(id)
	if waited {
		r.uses.note(was.key, leaveLine)
	}

	// The replaced start is given back, also after an error. It has no slots: a grant with slots is cancelled, not replaced.
	if replaces {
		r.uses.add(b, -1, false)
	}
	if err != nil {
		return g, err
	}

	// A caller without a start has asked for its budgets, too.
	if g.OK {
		r.uses.add(b, 1, g.Wait == 0)
	} else {
		r.uses.add(b, 0, false)
	}

	if g.HeldBy >= 0 {
		// Keep the time of a caller that waits again: an operator sees the whole wait.
		if !waited {
			was.since = time.Now()
		}
		r.held(ctx, &b.Charges[g.HeldBy], &g, was.since)
	}

	return g, nil
}

// held records the outcome of a booking that the charge c held back: a start later than now, a place in line, or a
// refusal. since is when the caller began to wait. If the budget is closed, held notes that, too, and asks why: see
// notes.meet.
func (r *Reporter) held(ctx context.Context, c *store.Charge, g *store.Grant, since time.Time) {
	switch {
	case g.OK: // Book has counted the start
	case g.Ready != nil:
		r.waits.begin(waiterID(g.Handle, g.Turn), waiter{c.Budget.Key, since})
		r.uses.wait(c, time.Now())
	default:
		r.uses.note(c.Budget.Key, func(b *used) { b.refused.add(time.Now()) })
	}

	if g.Paused {
		// No start is possible before the end of a pause. With a place in line, or too many shares in the line, the wait is only an estimate.
		if g.Ready == nil && g.Shares == 0 {
			r.notes.compare(c, g.Wait)
		}

		// The cause is unknown here: this program met the closed budget.
		r.uses.close(c, "", time.Now())
		r.notes.meet(ctx, c, g.OK || g.Ready != nil)
	}
}

// Pause implements [store.Store].
func (r *Reporter) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	err := r.Store.Pause(ctx, c, d)
	if err == nil && d > 0 {
		r.closed(&c, ByProgram)
	}
	return err
}

// Refuse implements [store.Store].
func (r *Reporter) Refuse(ctx context.Context, c store.Charge, f store.Refusal) (from, to float64, err error) {
	from, to, err = r.Store.Refuse(ctx, c, f)
	if err == nil && f.Length > 0 {
		r.closed(&c, ByAnswer)
	}
	return from, to, err
}

// Resume implements [store.Store].
func (r *Reporter) Resume(ctx context.Context, c store.Charge) error {
	err := r.Store.Resume(ctx, c)
	if err == nil {
		r.uses.open(&c)
		r.notes.ask()
	}
	return err
}

// closed notes that the program closed a budget. It triggers a report, because the program may end before the
// ban does.
func (r *Reporter) closed(c *store.Charge, by string) {
	r.uses.close(c, by, time.Now())
	r.notes.ask()
}

// Cancel implements [store.Store].
func (r *Reporter) Cancel(b *store.Booking, g store.Grant) {
	if g.OK {
		r.uses.add(b, -1, g.Wait == 0)
	} else if was, waited := r.waits.end(waiterID(g.Handle, g.Turn)); waited {
		r.uses.note(was.key, func(b *used) {
			leaveLine(b)
			b.left.add(time.Now())
		})
	}
	r.Store.Cancel(b, g)
}

// Settle implements [store.Store].
func (r *Reporter) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	err := r.Store.Settle(ctx, b, g, costs)
	if err == nil && g.OK {
		r.uses.settle(b, costs)
	}
	return err
}

// PauseNote implements [store.Store].
func (r *Reporter) PauseNote(b store.Budget) store.PauseNote { return r.notes.of(b.Key) }

// run reports until ctx ends: a whole report at first and with each tick, and an extra report when notes are wanted, when this program
// has closed or opened a budget, after ReportSoon, or when throttle was turned off or on. Finally it removes the program from the fleet.
func (r *Reporter) run(ctx context.Context) {
	defer close(r.done)
	ticker, looks := time.NewTicker(r.every), time.NewTicker(min(r.every, lookEvery))
	defer ticker.Stop()
	defer looks.Stop()

	r.look(ctx)
	for whole := true; ; {
		r.report(ctx, whole)

		// Wait until the next report is due. A look that finds nothing new does not end the wait.
		for waits := true; waits; {
			select {
			case <-ticker.C:
				whole, waits = true, false
			case <-r.notes.wake:
				whole, waits = false, false
			case <-looks.C:
				if r.look(ctx) {
					whole, waits = false, false // an operator waits for the report
				}
			case <-ctx.Done():
				r.leave()
				return
			}
		}
	}
}

// leave stores the closings that the index lacks, and removes the program from the fleet. It has a context of its
// own, because the context of run has ended. It returns no error: if Redis is away, the record expires.
func (r *Reporter) leave() {
	ctx, stop := context.WithTimeout(context.Background(), 2*farewell)
	defer stop()
	defer close(r.notes.takeQuestion()) // callers that wait for a note go on

	// Store the closings of this program before it ends: a ban outlives the program.
	r.askEnds(ctx, time.Now())
	r.beat(ctx, "", time.Now())
}

// report reports once. whole ends an interval of counting: see tally.
func (r *Reporter) report(ctx context.Context, whole bool) { r.reportAt(ctx, time.Now(), whole) }

// reportAt is report at a given moment.
func (r *Reporter) reportAt(ctx context.Context, now time.Time, whole bool) {
	r.reporting.Lock()
	defer r.reporting.Unlock()

	// Callers that have asked for a note go on when this report is over. A question from now on may miss this report, and gets the next one.
	defer close(r.notes.takeQuestion())
	r.askEnds(ctx, now)
	err := r.beat(ctx, string(r.record(ctx, now, whole).encode()), now)
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
}

// beat stores the program's record in Redis, or removes the program if record is "". The same call stores
// which budgets are closed at the moment now, and reads the notes, which notes learns.
func (r *Reporter) beat(ctx context.Context, record string, now time.Time) error {
	asked := time.Now()

	// Read the unstored closings before the call, so that markStored marks exactly these.
	closings, names, args := r.unstored(now)
	keys := append([]string{r.keys.nodes, r.keys.node + r.id, r.keys.pauses, r.keys.bans}, names...)
	reply, err := r.conn.Run(ctx, beatScript, keys, append([]any{r.id, record, keepRecord.Microseconds()}, args...)...)
	if err != nil {
		return err
	}

	r.markStored(closings)

	// The script answers the server's time and the notes.
	var server int64
	var list []any
	ok := len(reply) == 2
	if ok {
		server, ok = reply[0].(int64)
	}
	if ok {
		list, ok = reply[1].([]any)
	}
	if !ok {
		return fmt.Errorf("fleet: Redis says what the script does not")
	}

	// The server's time counts as that of the question: a pause then never seems to end later than it does.
	r.notes.learn(readNotes(list, time.UnixMicro(server)), time.UnixMicro(server), asked)
	return nil
}

// record describes the program at the moment now. A whole record ends the interval of counting, and begins the next one.
func (r *Reporter) record(ctx context.Context, now time.Time, whole bool) *record {
	r.mu.Lock()
	file := r.file
	r.mu.Unlock()

	// An extra report comes too early for a rate, so it also covers the interval before. Right after the start there is
	// no interval before: then the span is every, at least.
	span := max(r.every, now.Sub(r.before))
	if whole {
		span = now.Sub(r.last)
		r.before, r.last = r.last, now
	}

	rec := &record{
		Version: recordVersion, Program: r.program, Host: hostname(), PID: os.Getpid(), Library: libraryVersion(),
		Up: Millis{now.Sub(r.begun)}, Every: Millis{r.every}, Span: Millis{span},
	}

	if file != nil {
		rec.File = file().clip()
	}

	rec.Switch = r.off.state()
	rec.Requests = r.uses.requests.report(whole)
	rec.Policies, rec.LeftOut = r.uses.report(now, whole, r.waits.sums())
	for i := range rec.Policies {
		rec.Policies[i].Runbook = address(rec.File.Runbooks[rec.Policies[i].Policy])
	}

	r.describeOwn(ctx, rec)
	return rec
}

// describeOwn adds the states of the node's own budgets, which are in its memory. A budget whose state cannot be read gets none.
func (r *Reporter) describeOwn(ctx context.Context, rec *record) {
	for i := range rec.Policies {
		p := &rec.Policies[i]
		c, err := p.charge()
		if err != nil || !p.Node {
			continue
		}

		for j := range p.Budgets {
			b := &p.Budgets[j]
			c.Budget.Key, _ = decodeKey(b.Key) // encodeKey has written it
			if st, err := r.Store.Status(ctx, c); err == nil {
				s := StateOf(st)
				b.State = &s
			}
		}
	}
}

const module = "github.com/fleetthrottle/throttle"

// libraryVersion returns the linked version of throttle, "(devel)" for a
// checkout, or "" if the program has no build information.
var libraryVersion = sync.OnceValue(func() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range b.Deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			return cmp.Or(m.Replace.Version, "(devel)") // a folder has no version
		}
		return m.Version
	}
	return "(devel)"
})

// hostname returns the machine's name.
var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return name
})

// File returns the text of the pushed policy file, which the caller must not
// modify. It transfers the text only after a new push. Its error is
// [ErrNothingPushed], or says why the file cannot be read.
func (r *Reporter) File(ctx context.Context) ([]byte, error) {
	r.pulled.mu.Lock()
	defer r.pulled.mu.Unlock()

	id, err := r.fields(ctx, "id")
	if err != nil {
		return nil, err
	}

	// The push is unchanged, so its text need not be sent again.
	if id[0] == r.pulled.id {
		return r.pulled.text, nil
	}

	// Read id and text together: a push between the two calls would pair the text with a stale id.
	v, err := r.fields(ctx, "id", "text")
	if err != nil {
		return nil, err
	}
	if len(v[1]) > MostText {
		return nil, fmt.Errorf("fleet: the pushed file is too long: %d bytes", len(v[1]))
	}

	r.pulled.id, r.pulled.text = v[0], []byte(v[1])
	return r.pulled.text, nil
}

// fields reads fields of the pushed file. Its error is ErrNothingPushed, or an *Error.
func (r *Reporter) fields(ctx context.Context, names ...string) (all []string, err error) {
	v, err := r.client.HMGet(ctx, r.keys.policies, names...).Result()
	if err != nil {
		return nil, storeError(r.conn.Error(err))
	}
	for _, field := range v {
		text, ok := field.(string)

		// Push writes all fields at once, so a missing field means that nothing was pushed.
		if !ok {
			return nil, ErrNothingPushed
		}
		all = append(all, text)
	}
	return all, nil
}

// ReportFile sets the function that returns the state of the policy file.
// Package policyfile/pushed calls it. The reporter calls state with each
// report, and reports soon.
func (r *Reporter) ReportFile(state func() FileState) {
	r.mu.Lock()
	r.file = state
	r.mu.Unlock()
	r.ReportSoon()
}

// ReportSoon triggers a report, at most one per second.
func (r *Reporter) ReportSoon() { r.notes.ask() }
