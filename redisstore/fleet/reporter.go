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
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// DefaultInterval is how often a reporter reports that is not told otherwise.
const DefaultInterval = 5 * time.Second

const (
	keepRecord = 10 * time.Minute // how long a record stays after the last report
	farewell   = time.Second      // how long Close waits for Redis
)

//go:embed beat.lua
var beatSource string

var beatScript = wire.FromSource(beatSource)

// ReporterOptions are those of a [Reporter]. The zero value of each field is useful.
type ReporterOptions struct {
	// Namespace is that of the store. A redisstore.Store says which one that is, and
	// another one is refused. Defaults to that of the redisstore.Store, or, around any
	// other store, to redisstore.DefaultNamespace.
	Namespace string

	// Program is the name under which the program is shown: 200 characters of it, and
	// those that control a terminal are escaped. Defaults to that of its file.
	Program string

	// Interval is how often the reporter reports. At least 10 ms. Defaults to [DefaultInterval].
	Interval time.Duration
}

// A Reporter is a [store.Store] around another that lets operators see the program, and
// lets the program's errors say what operators said. It is safe for concurrent use.
type Reporter struct {
	store.Store // the one that it is around

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
	stop   context.CancelFunc
	done   chan struct{} // closed when nothing runs any more

	mu   sync.Mutex
	file func() FileState
	err  error

	reporting    sync.Mutex
	last, before time.Time // when the last interval of counting ended, and the one before
}

// A pulled is the pushed file as a reporter read it last.
type pulled struct {
	mu   sync.Mutex
	id   string // of the push
	text []byte
}

// Start puts a reporter around a store, which reports until it is closed. It needs not wait
// for Redis: one that is away is told later. The client stays the caller's. The error
// has a *[store.OptionError] for each mistake; then nothing has been started.
func Start(client redis.UniversalClient, store store.Store, o ReporterOptions) (*Reporter, error) {
	if err := checkReporter(client, store, &o); err != nil {
		return nil, err
	}

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
	if s, ok := store.(pauseTeller); ok {
		s.OnPause(func() { r.notes.ask() })
	}

	go r.run(ctx)
	return r, nil
}

// namespaced is a store that says which namespace its budgets are in: a redisstore.Store.
type namespaced interface{ Namespace() string }

// leastInterval is the shortest Interval of a reporter: each report is a call.
const leastInterval = 10 * time.Millisecond

// checkReporter returns what is wrong with what [Start] was given, all of it.
func checkReporter(client redis.UniversalClient, around store.Store, o *ReporterOptions) error {
	mistakes := []error{redisstore.New(client, redisstore.Options{Namespace: o.Namespace}).Traits().Err}
	mistake := func(option, problem string) {
		mistakes = append(mistakes, &store.OptionError{Package: "fleet", Option: option, Problem: problem})
	}

	if around == nil {
		mistake("store", "is nil: give the store that the reporter is around")
	} else if err := around.Traits().Err; err != nil {
		mistakes = append(mistakes, err)
	}

	if s, ok := around.(namespaced); ok && o.Namespace != "" && o.Namespace != s.Namespace() {
		mistake("ReporterOptions.Namespace", fmt.Sprintf("%q is not that of the store, %q: leave it out", o.Namespace, s.Namespace()))
	}
	if o.Interval != 0 && o.Interval < leastInterval {
		mistake("ReporterOptions.Interval", fmt.Sprintf("%v is too short: use %v or more, or 0 for %v", o.Interval, leastInterval, DefaultInterval))
	}

	return errors.Join(mistakes...)
}

// A pauseTeller is a store that tells when a budget was closed, or opened: a redisstore.Store.
// Behind another, callers that wait learn of a reason with the next report.
type pauseTeller interface{ OnPause(tell func()) }

// Close ends the reports and lets the fleet forget the program at once; if Redis is away
// it does so by itself after ten minutes. The store goes on working. Close waits for a
// second at most, and may be called more than once.
func (r *Reporter) Close() {
	r.stop()
	if s, ok := r.Store.(pauseTeller); ok {
		s.OnPause(nil)
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
}

// ID returns the id under which the program is shown.
func (r *Reporter) ID() string { return r.id }

// Err returns why the last report failed; nil: it did not.
func (r *Reporter) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Book implements [store.Store].
func (r *Reporter) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	replaces, waiter := b.Instead.Start != 0, waiterID(b.Instead, b.Turn)
	g, err := r.Store.Book(ctx, b)
	was, waited := r.waits.end(waiter)
	if replaces {
		r.uses.add(b, -1, false) // who has slots gives them back, and replaces nothing
	}
	if err != nil {
		return g, err
	}

	if g.OK {
		r.uses.add(b, 1, g.Wait == 0)
	} else {
		r.uses.add(b, 0, false)
	}

	if g.HeldBy >= 0 {
		if !waited {
			was.since = time.Now()
		}
		r.held(ctx, &b.Charges[g.HeldBy], &g, was.since)
	}

	return g, nil
}

// held notes what became of a caller that a charge held, and that has waited since then.
func (r *Reporter) held(ctx context.Context, c *store.Charge, g *store.Grant, since time.Time) {
	switch {
	case g.OK:
	case g.Ready != nil:
		r.waits.begin(waiterID(g.Handle, g.Turn), waiter{c.Budget.Key, since})
	default:
		r.uses.note(c.Budget.Key, func(b *used) { b.refused.add(time.Now()) })
	}
	if g.Paused {
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

// closed notes that the program closed a budget, and has that reported soon: the program may end before the
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
		r.uses.note(was.key, func(b *used) { b.left.add(time.Now()) })
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

// run reports until ctx ends: a whole report with each tick, and a report that ends no interval of counting
// when somebody wants the notes anew. Then it has the fleet forget the program.
func (r *Reporter) run(ctx context.Context) {
	defer close(r.done)
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()

	for whole := true; ; {
		r.report(ctx, whole)
		select {
		case <-ticker.C:
			whole = true
		case <-r.notes.wake:
			whole = false
		case <-ctx.Done():
			ctx, stop := context.WithTimeout(context.Background(), 2*farewell)
			defer stop()
			defer close(r.notes.asked())
			r.askEnds(ctx, time.Now())
			r.beat(ctx, "", time.Now())

			return
		}
	}
}

// report makes one report. whole says that the report ends an interval of counting: see tally.
func (r *Reporter) report(ctx context.Context, whole bool) { r.reportAt(ctx, time.Now(), whole) }

// reportAt is report at a moment.
func (r *Reporter) reportAt(ctx context.Context, now time.Time, whole bool) {
	r.reporting.Lock()
	defer r.reporting.Unlock()
	defer close(r.notes.asked()) // whoever asks from here on may come too late for this report, and gets another one
	r.askEnds(ctx, now)
	err := r.beat(ctx, string(r.record(ctx, now, whole).encode()), now)
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
}

// beat stores a record of the program in Redis or, if record is "", removes the program. In the same call it
// stores which budgets are closed, as of now, and reads the notes.
func (r *Reporter) beat(ctx context.Context, record string, now time.Time) error {
	asked := time.Now()
	closings, names, args := r.unstored(now)
	keys := append([]string{r.keys.nodes, r.keys.node + r.id, r.keys.pauses, r.keys.bans}, names...)
	reply, err := r.conn.Run(ctx, beatScript, keys, append([]any{r.id, record, keepRecord.Microseconds()}, args...)...)
	if err != nil {
		return err
	}

	r.markStored(closings)
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

	r.notes.learn(readNotes(list, time.UnixMicro(server)), time.UnixMicro(server), asked)
	return nil
}

// record describes the program.
func (r *Reporter) record(ctx context.Context, now time.Time, whole bool) *record {
	r.mu.Lock()
	file := r.file
	r.mu.Unlock()
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

	rec.Requests = r.uses.requests.report(whole)
	rec.Policies, rec.LeftOut = r.uses.report(now, whole, r.waits.sums())
	for i := range rec.Policies {
		rec.Policies[i].Runbook = address(rec.File.Runbooks[rec.Policies[i].Policy])
	}

	r.describeOwn(ctx, rec)
	return rec
}

// describeOwn adds the state of the node's own budgets, which lie in its memory.
func (r *Reporter) describeOwn(ctx context.Context, rec *record) {
	for i := range rec.Policies {
		p := &rec.Policies[i]
		c, err := p.charge()
		if err != nil || !p.Node {
			continue
		}

		for j := range p.Budgets {
			b := &p.Budgets[j]
			c.Budget.Key, _ = decodeKey(b.Key)

			if st, err := r.Store.Status(ctx, c); err == nil {
				s := StateOf(st)
				b.State = &s
			}
		}
	}
}
