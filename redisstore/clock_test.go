package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// A skewed clock is ahead of the bubble's, or behind.
type skewed struct{ by atomic.Int64 }

func (c *skewed) now() int64 { return time.Now().Add(time.Duration(c.by.Load())).UnixMicro() }

func (c *skewed) step(by time.Duration) { c.by.Add(int64(by)) }

// onSkewed runs f in a bubble with a store whose server has a clock of its own.
func onSkewed(t *testing.T, f func(t *testing.T, s *redisstore.Store, c *skewed)) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := &skewed{}
		f(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, c.now), c)
	})
}

const span = time.Second + time.Microsecond // of one per second

// TestP9_Slewing lets the clock run a tenth too fast or too slowly. Its windows are a
// tenth shorter or longer, and no more than that.
func TestP9_Slewing(t *testing.T) {
	each(t, []time.Duration{10, -10}, func(t *testing.T, part time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			const n = 10
			var starts log
			for range 1000 {
				time.Sleep(10 * time.Millisecond)
				c.step(10 * time.Millisecond / part)
				if ask(t, s, &store.Booking{Charges: []store.Charge{charge("slewed", store.PerSecond(n))}}).OK {
					starts.add(1)
				}
			}
			per := time.Second - time.Second/11
			if part < 0 {
				per = time.Second
			}
			starts.judgeWindows(t, per, func(time.Time) int { return n })
			require.Greater(t, len(starts.all), 10*n*85/100)
		})
	})
}

// TestP9_ACallThatWasHeldIsNoStep holds a call up before it is done, and loses its
// answer. When it is answered again, that was just now, though it was first asked long
// ago: as if the clock had been set back since. It was not, by what the program heard
// before, so a place that is cancelled is given back at once.
func TestP9_ACallThatWasHeldIsNoStep(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, way, calls := server.Client(t), &slowWay{}, 0
		s := atRest(t, redisstore.NewAt(client, redisstore.Options{}, way.now))
		require.Zero(t, book(t, s, charge("first", store.PerSecond(1))), "the server knows the script then")
		client.AddHook(way)
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			switch calls++; calls {
			case 2: // it was slow, so it was asked back
				way.by.Store(int64(500 * time.Millisecond))
			case 3:
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", store.PerMinute(1))
		require.Zero(t, book(t, s, one))
		way.by.Store(int64(500 * time.Millisecond))
		k := booking(one)
		g := ask(t, s, k)
		wait := time.Minute + time.Microsecond - 1010*time.Millisecond
		require.Equal(t, wait, g.Wait)
		require.Equal(t, 500*time.Millisecond, g.Age, "it may have been decided as much earlier")
		s.Cancel(k, g)
		require.Equal(t, wait, book(t, s, one))
	})
}

// oddWindows are lengths that divide no second, or no day.
var oddWindows = []time.Duration{1399 * time.Millisecond, 700 * time.Millisecond, 3_333_333 * time.Microsecond, 86_399 * time.Second}

// edgeAfter returns when the next window of a length begins by the server's clock.
func edgeAfter(c *skewed, per time.Duration) int64 {
	return (c.now()/per.Microseconds() + 1) * per.Microseconds()
}

// TestP1_EdgesOfOddWindows books a microsecond before the edge of a window, on it, and a
// microsecond after it, until times at which Lua's numbers have no digit left. A window is what
// the definition in whole numbers says.
func TestP1_EdgesOfOddWindows(t *testing.T) {
	soak.WithoutRace(t)
	const twoYears = 2 * 365 * 24 * time.Hour
	each(t, append(oddWindows, 3*time.Microsecond, 999_983*time.Microsecond), func(t *testing.T, per time.Duration) {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			rng := rand.New(rand.NewPCG(uint64(per), 53))
			length := per.Microseconds()
			for i := range 60 {
				c.step(twoYears + time.Duration(rng.Int64N(int64(twoYears))).Truncate(time.Microsecond))
				edge := edgeAfter(c, per)
				for _, off := range []int64{-1, 0, 1} {
					c.step(time.Duration(edge+off-c.now()) * time.Microsecond)
					one := charge(fmt.Sprint("one ", i, off), store.FixedWindow(1, per))
					require.Zero(t, book(t, s, one))
					left := new(big.Int).Sub(big.NewInt(length), new(big.Int).Mod(big.NewInt(edge+off), big.NewInt(length)))
					require.Equal(t, time.Duration(left.Int64())*time.Microsecond, book(t, s, one), "%d %+d", edge, off)
				}
			}
			require.Greater(t, c.now(), int64(1)<<52)
		})
	})
}

// TestP1_OddWindows compares random operations on windows that divide no second with the
// definition: twenty thousand, in make soak, times $SOAK.
func TestP1_OddWindows(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(soak.Seeds(40, 4)) {
		storetest.RandomWindows(t, func(t *testing.T) store.Store {
			client := server.Client(t)
			forgets(t, client)
			return atRest(t, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		}, 1000+seed, 500)
	}
}

// A slow way holds one script call up before it reaches the server, whose clock has
// gone on by then.
type slowWay struct {
	tap
	skewed
	by atomic.Int64
}

func (w *slowWay) now() int64 { return w.skewed.now() + w.by.Load()/int64(time.Microsecond) }

func (w *slowWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isScript(cmd) {
			time.Sleep(time.Duration(w.by.Swap(0)))
		}
		return next(ctx, cmd)
	}
}

// TestP9_TheServersClockIsReadInFull: a row begins with the time at which it was
// seen last. Every script reads it from the server, to the microsecond.
func TestP9_TheServersClockIsReadInFull(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	simple, large := charge("simple", store.PerHour(1)), charge("window", store.FixedWindow(1, time.Hour))
	for _, c := range []struct {
		name   string
		charge store.Charge
		do     func(store.Charge)
	}{
		{"a booking, the short way", simple, func(c store.Charge) { book(t, s, c) }},
		{"a booking", large, func(c store.Charge) { book(t, s, c) }},
		{"a pause", simple, func(c store.Charge) { require.NoError(t, s.Pause(t.Context(), c, time.Hour)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			c.do(c.charge)
			after, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			head, err := client.GetRange(t.Context(), s.Key(c.charge.Budget), 0, 7).Bytes()
			require.NoError(t, err)
			seen := int64(math.Float64frombits(binary.LittleEndian.Uint64(head)))
			require.GreaterOrEqual(t, seen, before.UnixMicro())
			require.LessOrEqual(t, seen, after.UnixMicro())
		})
	}
}

// repeatsAfter is how long a commit queue waits before it makes a call again.
const repeatsAfter = 10 * time.Millisecond

// onAgain runs f in a bubble with a store whose server has a clock of its own. The
// function lose loses the answer of the next call. Then the clock is set, and the
// server is away.
func onAgain(t *testing.T, f func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration))) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, c := server.Client(t), &skewed{}
		s := atRest(t, redisstore.NewAt(client, redisstore.Options{}, c.now))
		require.Zero(t, book(t, s, charge("first", store.PerSecond(1))), "the server knows the script then")
		var loses func()
		var back time.Time
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			if time.Now().Before(back) {
				return failing(cmd, errAway)
			}
			err := next()
			if loses == nil {
				return err
			}
			loses()
			loses = nil
			return failing(cmd, errAway)
		}))
		f(t, s, func(by, away time.Duration) {
			loses = func() {
				c.step(by)
				back = time.Now().Add(away)
			}
		})
	})
}

// TestP9_AnsweredAgainAfterAStep loses the answer that a start was booked for later.
// The server's clock is set before the call is answered again, as by a failover in
// the middle. The start is told for when it was, or, as far as nobody can know that,
// no later than its age says; and nobody waits for longer than was booked.
func TestP9_AnsweredAgainAfterAStep(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{
		0, -time.Microsecond, -4 * time.Millisecond, -repeatsAfter, -time.Second, -time.Hour, time.Second, time.Hour,
	} {
		for _, away := range []time.Duration{0, 300 * time.Millisecond} {
			t.Run(fmt.Sprint(by, " ", away), func(t *testing.T) {
				onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
					one := charge("one", store.PerSecond(1))
					require.Zero(t, book(t, s, one))
					booked := time.Now()
					lose(by, away)
					g := ask(t, s, booking(one))
					require.True(t, g.OK)
					require.GreaterOrEqual(t, time.Since(booked), max(away, repeatsAfter))
					require.LessOrEqual(t, g.Wait, span)
					require.Equal(t, booked.Add(span), time.Now().Add(g.Wait-g.Age), "the earliest moment that is meant")
					require.LessOrEqual(t, g.Age, min(by.Abs(), time.Since(booked)))
				})
			})
		}
	}
}

// TestP12_AnsweredAgainLate loses the answer that a start was booked at once, and
// then Redis is away. What is heard in the end is remembered for when it was, so that
// a row that is over by then is not taken for one that was lost.
func TestP12_AnsweredAgainLate(t *testing.T) {
	onAgain(t, func(t *testing.T, s *redisstore.Store, lose func(by, away time.Duration)) {
		one := charge("one", store.PerSecond(1))
		booked := time.Now()
		lose(0, 20*time.Second)
		g := ask(t, s, booking(one))
		require.Zero(t, g.Wait)
		require.GreaterOrEqual(t, g.Age, 20*time.Second)
		require.Equal(t, time.Since(booked), g.Age)
		forgets(t, s.Client()) // as the row's expiry would
		require.Zero(t, book(t, s, one))
	})
}

// TestP8_AnsweredByALaterCopy has Redis away for ten seconds when a call is made. The
// first copy that arrives books the start, but its answer is lost. The one after it is
// answered again: the start is as fresh as if it was told at once.
func TestP8_AnsweredByALaterCopy(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		atRest(t, s)
		back, lost := time.Now().Add(10*time.Second), false
		client.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			if !time.Now().Before(back) {
				if err := next(); lost {
					return err
				}
				lost = true
			}
			return failing(cmd, errAway)
		}))
		far := booking(charge("one", store.PerSecond(1)))
		far.NotBefore = time.Hour
		g := ask(t, s, far)
		require.True(t, lost)
		require.Positive(t, g.Wait)
		require.Zero(t, g.Age)
	})
}

// A dial is a fleet of two nodes whose server's clock is set again and again, and
// the truth about what started.
type dial struct {
	*testing.T
	rng    *rand.Rand
	clock  *skewed
	client *redis.Client
	nodes  []*redisstore.Store
	limit  store.Limit
	length time.Duration // of a window
	starts log
	sets   []time.Time // when the clock was set
}

// stepLimits has a limit of each kind.
var stepLimits = []store.Limit{
	store.PerSecond(1), store.PerSecond(5), store.PerSecond(60), store.SlidingWindow(300, time.Second),
	store.SlidingWindow(40, time.Hour), store.LeakyBucket(7, time.Second), store.TokenBucket(5, time.Second, 12),
	store.FixedWindow(6, 10*time.Second), store.CalendarWindow(20, store.Day, time.UTC),
}

// TestP9_RandomSteps lets callers of two nodes come, wait, start and give up, while
// the server's clock steps to and fro. Starts are judged by the bubble's time, which
// never does; nobody waits for longer than for those before him and a window.
func TestP9_RandomSteps(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	for i, limit := range stepLimits {
		runBubble(t, limit.String(), func(t *testing.T, server *redistest.Server) {
			d := &dial{
				T: t, rng: rand.New(rand.NewPCG(uint64(i), 5)), clock: &skewed{}, client: server.Client(t),
				limit: limit, length: max(limit.Per(), windowLength(limit)),
			}
			require.NoError(t, d.client.FlushDB(t.Context()).Err())
			for range 2 {
				d.nodes = append(d.nodes, redisstore.NewAt(server.Client(t), redisstore.Options{}, d.clock.now))
			}
			for range soak.Seeds(900, 300) {
				d.move()
			}
			rest(d.patience() + 2*d.length)
			d.starts.judge(t, limit, d.length, d.sets)
			require.Zero(t, d.ask(1, 0).Wait, "everything is over")
		})
	}
}

// windowLength is how long a window is in which the limit is used up, or filled.
func windowLength(l store.Limit) time.Duration {
	c := store.Charge{Limit: l}
	if l.Kind() == store.KindFixedWindow {
		begin, end := l.Window(time.UnixMicro(0))
		return end.Sub(begin)
	}
	return c.Span()
}

// move does one thing and lets time pass.
func (d *dial) move() {
	switch r := d.rng.IntN(100); {
	case r < 65:
		d.use(d.rng.IntN(2), 1+d.rng.IntN(min(d.limit.N(), 3)), d.patience())
	case r < 70:
		d.set()
	default:
		synctest.Wait()
		time.Sleep(time.Duration(d.rng.Int64N(int64(d.length / 4))).Truncate(time.Microsecond))
	}
}

// set sets the clock, by more than clocks differ anyhow. A step back that ends before
// anybody asks again is not seen, so somebody asks before it. One forward by which
// keys expire loses them, so everybody has asked.
func (d *dial) set() {
	far := []time.Duration{200 * time.Millisecond, d.length, 5 * d.length, time.Hour, 24 * time.Hour}[d.rng.IntN(5)]
	by := (100*time.Millisecond + d.length/50 + time.Duration(d.rng.Int64N(int64(far)))).Truncate(time.Microsecond)
	synctest.Wait()
	for i := range d.nodes {
		if d.rng.IntN(2) == 0 {
			d.use(i, 1, 0)
		}
	}
	if d.rng.IntN(2) == 0 {
		d.use(d.rng.IntN(2), 1, 0)
		by = -by
	} else if d.wouldExpire(by) {
		d.use(0, 1, 0)
		d.use(1, 1, 0)
	}
	d.clock.step(by)
	d.expire()
	d.sets = append(d.sets, time.Now())
	for _, node := range d.rng.Perm(2) { // who slept through two steps cannot tell them
		g := d.use(node, 1, d.patience())
		require.LessOrEqual(d, g.Wait, d.patience()+d.length+time.Millisecond, "after a step by %v", by)
	}
}

// patience is how long a caller may wait. Who waits for an edge of the clock sees it
// where that was when it asked, so several such clocks make it more than judge knows.
func (d *dial) patience() time.Duration {
	if d.limit.Kind() == store.KindFixedWindow {
		return 0
	}
	return 3 * d.length
}

// use books and uses the start. Some callers give up before it, or a little after.
func (d *dial) use(node, cost int, patience time.Duration) store.Grant {
	k := booking(charge("limited", d.limit))
	k.MaxWait, k.Charges[0].Cost = patience, cost
	g := ask(d.T, d.nodes[node], k)
	if !g.OK {
		return g
	}
	giveUp, at := d.rng.IntN(4) == 0, g.Wait
	if giveUp {
		at = time.Duration(d.rng.Int64N(int64(g.Wait + d.length/4)))
	}
	go func() {
		time.Sleep(at)
		if giveUp {
			d.nodes[node].Cancel(k, g)
		} else {
			d.starts.add(cost)
		}
	}()
	return g
}

// ask books with the first node, for nobody.
func (d *dial) ask(cost int, patience time.Duration) store.Grant {
	k := booking(charge("limited", d.limit))
	k.MaxWait, k.Charges[0].Cost = patience, cost
	g := ask(d.T, d.nodes[0], k)
	require.True(d, g.OK)
	return g
}

// kept is by how much keys live longer in tests.
const kept = int64(longer / time.Microsecond)

// expires returns when the row would be gone, and whether there is one.
func (d *dial) expires() (at int64, ok bool) {
	raw, err := d.client.Get(d.Context(), d.nodes[0].Key(charge("limited", d.limit).Budget)).Bytes()
	if err == redis.Nil {
		return 0, false
	}
	require.NoError(d, err)
	return int64(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*25:]))) - kept, true
}

// wouldExpire reports whether a step forward would let the row's key expire.
func (d *dial) wouldExpire(by time.Duration) bool {
	at, ok := d.expires()
	return ok && at <= d.clock.now()+by.Microseconds()
}

// expire deletes what the server would have lost by its clock.
func (d *dial) expire() {
	if !d.wouldExpire(0) {
		return
	}
	keys, err := d.client.Keys(d.Context(), "*").Result()
	require.NoError(d, err)
	for _, key := range keys {
		if !strings.Contains(key, "calls:") {
			require.NoError(d, d.client.Del(d.Context(), key).Err(), fmt.Sprint(key))
		}
	}
}

// A log is what really started, in order.
type log struct {
	mu  sync.Mutex
	all []started
}

type started struct {
	at   time.Time
	cost int
}

func (l *log) add(cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, started{time.Now(), cost})
}

// requireWithin counts each closed interval that begins with a start; a pace is
// checked between neighbours.
func (l *log) requireWithin(t *testing.T, limit store.Limit) {
	t.Helper()
	slices.SortFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum, unit := 0, limit.Per()/time.Duration(limit.N())
		for _, next := range l.all[i+1:] {
			gap := next.at.Sub(first.at)
			if limit.Kind() == store.KindLeakyBucket {
				require.GreaterOrEqual(t, gap, time.Duration(first.cost)*unit, "start %d at %v", i, first.at)
				break
			}
			if gap <= limit.Per() {
				sum += next.cost
			}
		}
		if limit.Kind() != store.KindLeakyBucket {
			require.LessOrEqual(t, first.cost+sum, limit.N(), "from start %d at %v", i, first.at)
		}
	}
}

// judge holds true starts against the definition of the limit, by brute force. An
// interval of a window's length can touch two windows with fixed edges, and one more
// whenever the clock was set, because that has its edges elsewhere.
func (l *log) judge(t *testing.T, limit store.Limit, length time.Duration, sets []time.Time) {
	t.Helper()
	switch limit.Kind() {
	case store.KindTokenBucket:
		l.judgeBucket(t, limit)
	case store.KindFixedWindow:
		l.judgeWindows(t, length-time.Microsecond, func(from time.Time) int {
			windows := 2
			for _, set := range sets {
				if !set.Before(from) && set.Before(from.Add(length)) {
					windows++
				}
			}
			return windows * limit.N()
		})
	case store.KindLeakyBucket:
		l.requireWithin(t, limit)
	default:
		l.judgeWindows(t, limit.Per(), func(time.Time) int { return limit.N() })
	}
}

// judgeWindows counts each closed interval that begins with a start.
func (l *log) judgeWindows(t *testing.T, per time.Duration, most func(from time.Time) int) {
	t.Helper()
	slices.SortStableFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum := 0
		for _, next := range l.all[i:] {
			if next.at.Sub(first.at) > per {
				break
			}
			sum += next.cost
		}
		require.LessOrEqual(t, sum, most(first.at), "from start %d at %v", i, first.at)
	}
}

// judgeBucket sums up each run of starts.
func (l *log) judgeBucket(t *testing.T, limit store.Limit) {
	t.Helper()
	slices.SortStableFunc(l.all, func(a, b started) int { return a.at.Compare(b.at) })
	for i, first := range l.all {
		sum := 0
		for _, next := range l.all[i:] {
			sum += next.cost
			flown := int64(next.at.Sub(first.at)) * int64(limit.N()) / int64(limit.Per())
			require.LessOrEqual(t, int64(sum-limit.Capacity()), flown, "from start %d at %v to %v", i, first.at, next.at)
		}
	}
}
