package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

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

// operations is how many there are for each limit: $THROTTLE_CLOCK_OPERATIONS in
// the long run.
func operations() int {
	if n, err := strconv.Atoi(os.Getenv("THROTTLE_CLOCK_OPERATIONS")); err == nil {
		return n
	}
	return soak.Most(900, 300)
}

// TestP9_RandomSteps lets callers of two nodes come, wait, start and give up, while
// the server's clock steps to and fro. Starts are judged by the bubble's time, which
// never does; nobody waits for longer than for those before him and a window.
func TestP9_RandomSteps(t *testing.T) {
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
			for range operations() {
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
		if time.Sleep(at); giveUp {
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
