package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// TestVectors plays what a fleet meets that shares one server: testdata/vectors/README.md has
// the moves that the vectors of package storetest lack.
func TestVectors(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	files, err := filepath.Glob("testdata/vectors/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			storetest.RunVectors(t, filepath.Base(file), string(text), func(t *testing.T) storetest.Fleet { return newPlayers(t, server) })
		})
	}
}

// Players are the programs of a vector, by their names, and the server that they share, whose
// clock can be set.
type players struct {
	*testing.T
	skewed
	hooks    []redis.Hook
	server   *redistest.Server
	operator *redis.Client
	began    time.Time
	programs map[string]*player
	kept     keptRows // what the server had, as a replica that lags
}

// A player is a program. Its calls can fail, be lost with their answers, or be slow.
type player struct {
	tap
	store *redisstore.Store

	// The lock of the tap guards the rest.
	back  time.Time // until then no call reaches the server
	loses int       // the answers of how many calls are lost
	then  func()    // what happens when the last one is
	slow  time.Duration
}

// newPlayers returns the programs of a vector; hooks are the innermost ones of their clients.
func newPlayers(t *testing.T, server *redistest.Server, hooks ...redis.Hook) storetest.Fleet {
	p := &players{T: t, hooks: hooks, server: server, operator: server.Client(t), began: time.Now(), programs: make(map[string]*player)}
	loaded(t, p.operator, nil)
	return storetest.Fleet{
		Program: func(name string) store.Store { return p.program(name).store },
		Moves: map[string]func(storetest.Move){
			"clock":   func(m storetest.Move) { p.step(m.Times[0]) },
			"forget":  p.forget,
			"expire":  p.expire,
			"keep":    func(storetest.Move) { p.kept = keepRows(t, p.operator) },
			"restore": p.restore,
			"persist": func(m storetest.Move) { require.NoError(t, p.operator.Persist(t.Context(), p.key(m.Charges[0])).Err()) },
			"small":   func(storetest.Move) { requireSmall(t, p.operator) },
			"lives":   p.lives,
			"cut":     p.cut,
			"mend":    func(m storetest.Move) { p.program(m.Program).cutOffUntil(time.Time{}) },
			"lose":    p.lose,
			"slow":    p.slow,
			"calls":   p.calls,
			"leases":  func(m storetest.Move) { p.is(m, p.program(m.Program).store.Leases()) },
			"listens": func(m storetest.Move) { p.is(m, p.program(m.Program).store.Subscriptions()) },
			"now":     func(m storetest.Move) { p.is(m, int(time.Since(p.began))) },
			"knows":   p.knows,
			"used":    p.used,
		},
	}
}

// program returns a program, which begins when it is first named.
func (p *players) program(name string) *player {
	if known, ok := p.programs[name]; ok {
		return known
	}
	client, way := p.server.Client(p), &player{}
	client.AddHook(way)
	for _, h := range p.hooks {
		client.AddHook(h)
	}
	way.store = atRest(p.T, redisstore.NewAt(client, redisstore.Options{}, func() int64 {
		way.mu.Lock()
		defer way.mu.Unlock()
		return p.now() + way.slow.Microseconds() // the call that begins now arrives then
	}).Listen())
	p.programs[name] = way
	return way
}

// ProcessHook is the way of a program's calls.
func (w *player) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		w.mu.Lock()
		w.cmds = append(w.cmds, cmd)
		slow := w.slow
		w.slow = 0
		w.mu.Unlock()

		time.Sleep(slow)
		if w.isAway() {
			return failing(cmd, errAway)
		}
		if err := next(ctx, cmd); !w.losesAnswer() {
			return err
		}
		return failing(cmd, errAway)
	}
}

// cutOffUntil lets no call reach the server until the moment back.
func (w *player) cutOffUntil(back time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.back = back
}

func (w *player) isAway() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.back)
}

// losesAnswer reports whether the answer that came now is lost.
func (w *player) losesAnswer() bool {
	w.mu.Lock()
	lost, then := w.loses > 0, w.then
	if lost {
		w.loses--
	}
	last := lost && w.loses == 0
	w.mu.Unlock()
	if last && then != nil {
		then()
	}
	return lost
}

// slow has the next call of a program take so long.
func (p *players) slow(m storetest.Move) {
	way := p.program(m.Program)
	way.mu.Lock()
	defer way.mu.Unlock()
	way.slow = m.Times[0]
}

// cut keeps a program's calls from the server for so long, or until it is mended.
func (p *players) cut(m storetest.Move) {
	long := 1000 * time.Hour
	if len(m.Times) > 0 {
		long = m.Times[0]
	}
	p.program(m.Program).cutOffUntil(time.Now().Add(long))
}

// lose loses the answers of so many calls. With the last one the clock is set, and then the server
// is away for so long, if the move says so.
func (p *players) lose(m storetest.Move) {
	way := p.program(m.Program)
	way.mu.Lock()
	defer way.mu.Unlock()
	way.loses, way.then = int(m.Times[0]), func() {
		if len(m.Times) > 1 {
			p.step(m.Times[1])
			way.cutOffUntil(time.Now().Add(m.Times[2]))
		}
	}
}

// forget lets the server lose all that it has, or what it has of some budgets, or its scripts.
func (p *players) forget(m storetest.Move) {
	if len(m.Words) > 0 {
		require.NoError(p, p.operator.ScriptFlush(p.Context()).Err())
	} else if len(m.Charges) == 0 {
		forgets(p.T, p.operator)
	}
	for _, c := range m.Charges {
		require.NoError(p, p.operator.Del(p.Context(), p.key(c)).Err())
	}
}

// restore takes the server back to what was kept, or to what was kept of some budgets.
func (p *players) restore(m storetest.Move) {
	rows := p.kept
	if len(m.Charges) > 0 {
		rows = make(keptRows)
	}
	for _, c := range m.Charges {
		rows[p.key(c)] = p.kept[p.key(c)]
	}
	rows.restore(p.T, p.operator)
}

// expire lets time pass for the key of a budget, too: if it expires in production it is deleted.
func (p *players) expire(m storetest.Move) {
	for _, c := range m.Charges {
		left := lifetime(p.T, p.operator, p.key(c))
		require.Positive(p, left, m.Place)
		if left-m.Times[0] > longer {
			require.NoError(p, p.operator.PExpire(p.Context(), p.key(c), left-m.Times[0]).Err())
		} else {
			require.NoError(p, p.operator.Del(p.Context(), p.key(c)).Err())
		}
	}
	time.Sleep(m.Times[0])
}

// longer is by how much keys outlive those of production in virtual time. Redis counts their lifetimes by its own clock, and a busy machine may take
// minutes for a virtual second.
const longer = time.Hour

// lives requires that the key of a budget would expire in production between two times from now on.
func (p *players) lives(m storetest.Move) {
	p.is(m, int(max(0, lifetime(p.T, p.operator, p.key(m.Charges[0]))-longer)))
}

// key returns the key of a budget.
func (p *players) key(c store.Charge) string {
	if s := p.program("").store; c.Limit.Kind() != store.KindConcurrency {
		return s.Key(c.Budget)
	} else {
		return s.LeasesKey(c.Budget)
	}
}

// calls requires that a program made so many calls since it was last asked.
func (p *players) calls(m storetest.Move) {
	synctest.Wait()
	p.is(m, len(p.program(m.Program).names()))
}

// is requires that something is what a move names, or between the two things that it names.
func (p *players) is(m storetest.Move, got int) {
	require.GreaterOrEqual(p, time.Duration(got), m.Times[0], m.Place)
	require.LessOrEqual(p, time.Duration(got), m.Times[len(m.Times)-1], m.Place)
}

// knows requires that a program believes a budget to be closed for so long.
func (p *players) knows(m storetest.Move) {
	require.Equal(p, m.Times[0], p.program(m.Program).store.Closed(p.key(m.Charges[0])), m.Place)
}

// used has an operator say how much is used, and requires what was used before.
func (p *players) used(m storetest.Move) {
	before := setUsed(p.T, p.operator, p.program(m.Program).store, m.Charges[0], int(m.Times[1]))
	require.Equal(p, int(m.Times[0]), before, m.Place)
}

const (
	differentialSeeds = 16
	differentialOps   = 250
)

// TestP1_AsMemstore does the same random operations on both stores. They must
// give the same answers, to the microsecond, in everything but Age.
func TestP1_AsMemstore(t *testing.T) {
	soak.WithoutRace(t)
	eachBubble(t, seeds(soak.Seeds(differentialSeeds, 2)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client) // over a connection that is there before years pass: one made later costs minutes
		d := newPair(t, seed, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		for d.op = range differentialOps {
			d.step()
		}
	})
}

// A pair is two stores that are told the same.
type pair struct {
	*testing.T
	rng     *rand.Rand
	op      int
	mem     *memstore.Store
	red     *redisstore.Store
	budgets []store.Charge
	grants  []pairGrant // of the latest bookings
}

// A pairGrant can be given back.
type pairGrant struct {
	booking store.Booking
	grant   store.Grant
}

func newPair(t *testing.T, seed uint64, red *redisstore.Store) *pair {
	d := &pair{T: t, rng: rand.New(rand.NewPCG(seed, 2)), red: red}
	// Days that are left out or come twice lie ahead of some runs.
	days := []string{"2000-01-01", "2011-12-29", "2010-03-31", "2026-10-24", "2024-12-30", "2149-12-31"}
	day, err := time.Parse(time.DateOnly, days[seed%uint64(len(days))])
	require.NoError(t, err)
	time.Sleep(time.Until(day))
	d.mem = memstore.New()
	for i := range 5 {
		c := charge(fmt.Sprint("budget ", i), d.limit())
		c.Budget.Key[0] = byte(i) // memstore forgets only what shares a shard
		d.adorn(&c)
		d.budgets = append(d.budgets, c)
	}
	return d
}

// step does one operation.
func (d *pair) step() {
	switch r := d.rng.IntN(100); {
	case r < 50:
		d.book(d.booking())
	case r < 53:
		d.crowd()
	case r < 61:
		d.replace()
	case r < 70:
		d.cancel()
	case r < 73:
		d.pause()
	case r < 74:
		d.resume()
	case r < 78:
		d.status()
	case r < 80:
		c := &d.budgets[d.rng.IntN(len(d.budgets))]
		c.Limit = d.limit()
		d.adorn(c)
	default:
		time.Sleep(d.duration())
	}
}

// book books in both and compares the grants and what they say of shadows.
func (d *pair) book(k store.Booking) {
	want, got := k, k
	want.Charges, got.Charges = slices.Clone(k.Charges), slices.Clone(k.Charges)
	g := ask(d.T, d.mem, &want)
	r := ask(d.T, d.red, &got)
	r.Age, g.Handle.Stamp, r.Handle.Stamp = 0, 0, 0 // of no interest here
	if !r.OK {
		r.Handle = store.Handle{} // says nothing
	}
	require.Equal(d, g, r, "operation %d: %+v", d.op, k)
	if g.OK {
		d.grants = append(d.grants, pairGrant{want, g})
		d.grants = d.grants[max(0, len(d.grants)-100):]
	}
}

// crowd is many equal bookings at once, so that rows grow beyond their bound.
func (d *pair) crowd() {
	k := d.booking()
	k.MaxWait = -1
	for range 20 + d.rng.IntN(120) {
		d.book(k)
		if d.rng.IntN(4) == 0 {
			time.Sleep(time.Duration(d.rng.IntN(2000)) * time.Microsecond)
		}
	}
}

// replace books instead of an earlier grant.
func (d *pair) replace() {
	if old, ok := d.take(); ok {
		old.booking.Instead, old.booking.MaxWait = old.grant.Handle, d.patience()
		d.book(old.booking)
	}
}

func (d *pair) cancel() {
	if old, ok := d.take(); ok {
		d.mem.Cancel(&old.booking, old.grant)
		d.red.Cancel(&old.booking, old.grant)
	}
}

// take returns one of the latest grants, which may be given back more than once
// and under a limit that has changed: the stores must agree even then.
func (d *pair) take() (pairGrant, bool) {
	if len(d.grants) == 0 {
		return pairGrant{}, false
	}
	return d.grants[d.rng.IntN(len(d.grants))], true
}

func (d *pair) pause() {
	c, long := d.budgets[d.rng.IntN(len(d.budgets))], d.duration()
	if d.rng.IntN(2) == 0 {
		r := store.Refusal{Length: long, Ago: d.duration()}
		_, _, err := d.mem.Refuse(d.Context(), c, r)
		require.NoError(d, err)
		_, _, err = d.red.Refuse(d.Context(), c, r)
		require.NoError(d, err)
		return
	}
	require.NoError(d, d.mem.Pause(d.Context(), c, long))
	require.NoError(d, d.red.Pause(d.Context(), c, long))
}

func (d *pair) resume() {
	c := d.budgets[d.rng.IntN(len(d.budgets))]
	require.NoError(d, d.mem.Resume(d.Context(), c))
	require.NoError(d, d.red.Resume(d.Context(), c))
}

func (d *pair) status() {
	c := d.budgets[d.rng.IntN(len(d.budgets))]
	want := status(d.T, d.mem, c)
	require.Equal(d, want, status(d.T, d.red, c), "operation %d: %+v", d.op, c)
}

// limit returns one of any kind, from very narrow to wider than a row.
func (d *pair) limit() store.Limit {
	n := []int{1, 2, 5, 20, 100, 128, 129, 1000, 50_000, 1_000_000}[d.rng.IntN(10)]
	per := []time.Duration{
		50 * time.Millisecond, 333_333 * time.Microsecond, time.Second, 3*time.Second + time.Microsecond,
		20 * time.Second, time.Hour, 30 * 24 * time.Hour,
	}[d.rng.IntN(7)]
	if n < 100 {
		per = min(per, time.Hour) // a crowd must not wait for centuries
	}
	switch d.rng.IntN(6) {
	case 5:
		return store.Unlimited()
	case 0, 1, 2, 3:
		return d.window(n, per)
	}
	zones := []string{
		"Pacific/Apia", "Asia/Kathmandu", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca",
		"America/St_Johns", "Asia/Shanghai", "UTC",
	}
	loc, err := time.LoadLocation(zones[d.rng.IntN(len(zones))])
	require.NoError(d, err)
	return store.CalendarWindow(max(n, 20), store.Unit(1+d.rng.IntN(int(store.Year))), loc)
}

// lengths finds what stands behind the length of a window, in all forms that ParseLimit understands.
var lengths = regexp.MustCompile(`"[0-9]+/[0-9]*[smh]( [^"]*)?"`)

// window returns a limit of any kind that has so many in such a length. Where no bucket is so wide, it is
// a sliding window.
func (d *pair) window(n int, per time.Duration) store.Limit {
	_, err := store.ParseLimit("?")
	forms := lengths.FindAllStringSubmatch(err.Error(), -1)
	burst := strconv.Itoa(1 + d.rng.IntN(40))
	more := strings.Replace(forms[d.rng.IntN(len(forms))][1], "40", burst, 1)
	if l, err := store.ParseLimit(fmt.Sprintf("%d/%v%s", n, per, more)); err == nil {
		return l
	}
	return store.SlidingWindow(n, per)
}

// adorn gives a charge a jitter, a pace and a shadow that go with its limit.
func (d *pair) adorn(c *store.Charge) {
	c.Jitter, c.Pace = 0, 0
	c.Shadow = d.rng.IntN(8) == 0
	if d.rng.IntN(2) == 0 {
		c.Jitter = time.Duration(d.rng.IntN(10_000)) * time.Microsecond
	}
	if c.Limit.Kind() == store.KindSlidingWindow && d.rng.IntN(2) == 0 {
		c.Pace = (min(c.Limit.Per(), time.Second) / 4 / time.Duration(c.Limit.N())).Truncate(time.Microsecond)
	}
}

// booking asks for one to four budgets.
func (d *pair) booking() store.Booking {
	k := store.Booking{MaxWait: d.patience()}
	for _, i := range d.rng.Perm(len(d.budgets))[:1+d.rng.IntN(4)] {
		c := d.budgets[i]
		switch n := min(c.Limit.Capacity(), 1<<30); d.rng.IntN(6) {
		case 0:
			c.Cost = 1 + d.rng.IntN(n)
		case 1:
			c.Cost = 1 + d.rng.IntN(1+n/20)
		}
		k.Charges = append(k.Charges, c)
	}
	if d.rng.IntN(4) == 0 {
		k.Spread = time.Duration(d.rng.IntN(20_000)) * time.Microsecond
	}
	return k
}

// patience is a MaxWait.
func (d *pair) patience() time.Duration {
	switch d.rng.IntN(4) {
	case 0:
		return 0
	case 1:
		return d.duration()
	}
	return -1
}

// duration is a moment, a while or days.
func (d *pair) duration() time.Duration {
	most := []time.Duration{
		5 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second, 20 * time.Minute, 30 * time.Hour,
	}[d.rng.IntN(5)]
	return time.Duration(d.rng.Int64N(int64(most))).Truncate(time.Microsecond)
}

// TestP1_FromWindowToPace makes a window that was full, or that is full of what
// may have been forgotten, a pace: a start may cost as long as one at full cost
// would, but not a unit for each start that there was.
func TestP1_FromWindowToPace(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	stores := map[string]func(t *testing.T) store.Store{
		"memstore": func(*testing.T) store.Store { return memstore.New() },
		"redisstore": func(t *testing.T) store.Store {
			client := server.Client(t)
			forgets(t, client)
			return redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
		},
	}
	for name, newStore := range stores {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				full := func(name string) store.Charge {
					c := charge(name, store.PerSecond(40))
					startNow(t, s, 40, c)
					return c
				}
				c := full("at once")
				c.Limit = store.LeakyBucket(2, time.Hour)
				require.Equal(t, time.Hour, book(t, s, c))

				c = full("after a while")
				time.Sleep(2 * time.Second)
				require.Zero(t, book(t, s, c)) // forgets the forty
				c.Limit = store.LeakyBucket(1, time.Hour)
				require.Equal(t, time.Hour, book(t, s, c))
			})
		})
	}
}

// TestP1_UnlimitedAsMemstore has few budgets lose their number and get another one again and
// again, while they are closed, resumed, booked and given back. Both stores must give the same
// waits, to the microsecond.
func TestP1_UnlimitedAsMemstore(t *testing.T) {
	eachBubble(t, seeds(soak.Seeds(60, 6)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client)
		d := newPair(t, seed, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		d.budgets = d.budgets[:2]
		for i := range d.budgets {
			d.changeNumber(&d.budgets[i])
		}
		for d.op = range differentialOps {
			d.stepUnlimited()
		}
	})
}

// stepUnlimited does one operation on a budget whose number comes and goes.
func (d *pair) stepUnlimited() {
	switch r := d.rng.IntN(100); {
	case r < 30:
		d.book(d.cheap())
	case r < 40:
		d.replace()
	case r < 52:
		d.cancel()
	case r < 58:
		d.pause()
	case r < 62:
		d.resume()
	case r < 65:
		d.status()
	case r < 80:
		d.changeNumber(&d.budgets[d.rng.IntN(len(d.budgets))])
	default:
		time.Sleep(min(d.duration(), 5*time.Second))
	}
}

// changeNumber gives a budget a small number, of any kind of limit, or none.
func (d *pair) changeNumber(c *store.Charge) {
	n := 1 + d.rng.IntN(6)
	per := []time.Duration{50 * time.Millisecond, 333_333 * time.Microsecond, time.Second, 3*time.Second + time.Microsecond}[d.rng.IntN(4)]
	c.Limit = d.window(n, per)
	if d.rng.IntN(7) > 3 {
		c.Limit = store.Unlimited()
	}
	d.adorn(c)
	c.Shadow = false
}

// cheap is a booking that costs little, often of both budgets.
func (d *pair) cheap() store.Booking {
	k := store.Booking{MaxWait: d.patience()}
	for _, i := range d.rng.Perm(len(d.budgets))[:1+d.rng.IntN(len(d.budgets))] {
		c := d.budgets[i]
		c.Cost = 1 + d.rng.IntN(min(c.Limit.Capacity(), 3))
		k.Charges = append(k.Charges, c)
	}
	if d.rng.IntN(6) == 0 {
		k.Spread = time.Duration(d.rng.IntN(20_000)) * time.Microsecond
	}
	return k
}

// TestP1_PartsAsMemstore: callers that wait for large windows have the same starts in both stores: those
// of a single budget at the begin of a part, those of several budgets anywhere.
func TestP1_PartsAsMemstore(t *testing.T) {
	limits := []int{40, 129, 200, 255, 700, 1000, 5000}
	eachBubble(t, seeds(soak.Seeds(40, 4)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client)
		rng := rand.New(rand.NewPCG(seed, 3))
		mem, red := memstore.New(), atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		var budgets []store.Charge
		for _, name := range []string{"one", "two"} {
			n, per := limits[rng.IntN(len(limits))], time.Duration(50+rng.IntN(1950))*time.Millisecond
			c := charge(name, store.SlidingWindow(n, per))
			c.Jitter, c.Pace = time.Duration(rng.IntN(2)*35)*time.Millisecond, per/time.Duration(n*(1+rng.IntN(2)))
			budgets = append(budgets, c)
		}

		// Some budgets were closed before, or are in the slow start.
		for i := range rng.IntN(3) {
			length := time.Duration(rng.IntN(3000)) * time.Millisecond
			require.NoError(t, mem.Pause(t.Context(), budgets[i], length))
			require.NoError(t, red.Pause(t.Context(), budgets[i], length))
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
		}

		for range 300 {
			first := rng.IntN(2)
			b := store.Booking{MaxWait: -1, Horizon: time.Hour}
			for _, c := range budgets[first : first+1+rng.IntN(2-first)] {
				if rng.IntN(3) == 0 {
					c.Cost = 1 + rng.IntN(1+c.Limit.N()/8)
				}
				b.Charges = append(b.Charges, c)
			}
			want, got := ask(t, mem, &b), ask(t, red, &b)
			require.Equal(t, want.Wait, got.Wait, "seed %d: %+v", seed, b)
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(100_000)) * time.Microsecond)
			}
		}
	})
}
