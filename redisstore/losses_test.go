package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// forgotten runs a test with a server that forgets everything when it is told.
func forgotten(t *testing.T, test func(t *testing.T, client *redis.Client, forget func())) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		client, operator := server.Client(t), server.Client(t)
		loaded(t, client, nil)
		test(t, client, func() { forgets(t, operator) })
	})
}

// remembered are limits of every kind that counts starts.
var remembered = []store.Limit{
	store.SlidingWindow(5, time.Minute), store.SlidingWindow(100, time.Minute), store.PerHour(1),
	store.FixedWindow(5, time.Minute), store.CalendarWindow(5, store.Day, time.UTC),
	store.LeakyBucket(5, time.Minute), store.TokenBucket(1, 10*time.Second, 5),
}

// TestP12_Forgotten books starts, lets the server forget them all, and books
// another. It waits at least as long as if nothing had happened, and at most a
// window longer. One call finds the loss and repairs it, and when others had the time
// to tell what they know the next one books.
func TestP12_Forgotten(t *testing.T) {
	t.Parallel()
	for _, limit := range remembered {
		for name, starts := range map[string]int{"one": 1, "full": limit.Capacity(), "queue": limit.Capacity()*5/2 + 2} {
			t.Run(limit.String()+" "+name, func(t *testing.T) {
				forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
					s, same := redisstore.NewAt(client, redisstore.Options{}, bubbleClock), memstore.New()
					c := charge("budget", limit)
					for range starts {
						require.Equal(t, book(t, same, c), book(t, s, c))
						time.Sleep(10 * time.Millisecond)
					}
					forget()
					tap := newTap(client, nil)
					want, got := book(t, same, c), bookLost(t, s, c)
					require.Equal(t, []string{"evalsha", "evalsha"}, tap.names())
					require.GreaterOrEqual(t, got, want)
					require.LessOrEqual(t, got, want+window(limit))
					requireSmall(t, client)
				})
			})
		}
	}
}

// window is how long a start counts under the limit, without jitter.
func window(l store.Limit) time.Duration {
	switch {
	case l.Kind() == store.KindTokenBucket:
		return time.Duration(l.Capacity()) * l.Per() / time.Duration(l.N())
	case l.Per() == 0:
		return 24 * time.Hour
	}
	return l.Per() + time.Microsecond
}

// KeptRows are what a server knew at some moment, as a replica that lags knows it.
type keptRows map[string]string

func keepRows(t *testing.T, c *redis.Client) keptRows {
	t.Helper()
	b := make(keptRows)
	for _, key := range keys(t, c) {
		value, err := c.Get(t.Context(), key).Result()
		require.NoError(t, err)
		b[key] = value
	}
	return b
}

// restore makes it all that the server knows.
func (b keptRows) restore(t *testing.T, c *redis.Client) {
	t.Helper()
	forgets(t, c)
	for key, value := range b {
		require.NoError(t, c.Set(t.Context(), key, value, 2*time.Hour).Err())
	}
}

// TestP12_BusyFleetLosesAll empties Redis again and again under nodes that are all
// busy. Whoever asks first does not know what the others booked since it asked last;
// nobody starts before they have told. A second and a half later all of the limit is
// used again.
func TestP12_BusyFleetLosesAll(t *testing.T) {
	soak.Only(t)
	server := redistest.Shared(t)
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 12))
			c := newSharers(t, server, 2+r.IntN(5), redisstore.Options{}, forty)
			c.pull(1+r.IntN(8), c.nodes...)
			for at := 3 * time.Second; at < time.Minute; at += 5 * time.Second {
				c.until(at + time.Duration(r.Int64N(int64(time.Second))))
				forgets(t, server.Client(t))
			}
			c.until(time.Minute)
			c.end()
			c.never()
			for at := 8 * time.Second; at < time.Minute; at += 5 * time.Second {
				c.everySecond(at-2*time.Second, at, 39, 40) // they leave evenly, and a second is not a window
			}
		})
	}
}

// TestP12_LostWithoutEnd loses a budget ten times a second, as a server may that has no
// memory left for it. Its callers are kept for a while, and not forever.
func TestP12_LostWithoutEnd(t *testing.T) {
	onEmpty(t, func(t *testing.T, client *redis.Client, s *redisstore.Store) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
				_ = client.FlushDB(t.Context()).Err()
			}
		}()
		many := charge("many", store.PerMinute(100))
		for range 20 {
			require.LessOrEqual(t, bookLost(t, s, many), 2*telling)
			time.Sleep(150 * time.Millisecond)
		}
	})
}

// TestP12_ASlowCallIsNoLoss holds a call up until the row of its budget is over and its
// key gone. What the program knew when it wrote the call is over, too: nothing was lost,
// and nobody is kept.
func TestP12_ASlowCallIsNoLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, redisstore.Options{}, forty)
		s, one := c.nodes[0].store, charge("one", store.PerSecond(1))
		book(t, s, one)
		away(true, c.nodes...)
		time.AfterFunc(2500*time.Millisecond, func() {
			forgets(t, server.Client(t)) // in production it has expired
			back(c.nodes...)
		})
		require.Equal(t, 2500*time.Millisecond, bookLost(t, s, one))
		c.end()
	})
}

// TestP12_TellingIsNoExcuse: who has a MaxWait does not wait longer for others to tell,
// though the answer that asked for it was slow.
func TestP12_TellingIsNoExcuse(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := newSharers(t, server, 1, redisstore.Options{}, forty)
		s, many := c.nodes[0].store, charge("many", store.PerMinute(100))
		book(t, s, many)
		forgets(t, server.Client(t))
		away(true, c.nodes...)
		time.AfterFunc(900*time.Millisecond, func() { back(c.nodes...) })
		k, asked := booking(many), time.Now()
		k.MaxWait = 1500 * time.Millisecond
		require.False(t, ask(t, s, k).OK)
		require.Equal(t, k.MaxWait, time.Since(asked))
		c.end()
	})
}

// TestP12_SleepersTellWhatWasLost empties Redis while a program sleeps that alone
// knows of its starts. Another one's call makes it tell, though it makes none.
func TestP12_SleepersTellWhatWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	forgets(t, client)
	first, second := redisstore.New(server.Client(t), redisstore.Options{}), redisstore.New(server.Client(t), redisstore.Options{})
	limit := charge("long", store.PerHour(5))
	book(t, first, limit)
	for range 4 {
		book(t, second, limit)
	}
	sleeper := booking(limit)
	g := ask(t, second, sleeper)
	require.Greater(t, g.Wait, 59*time.Minute)
	w := second.Watch(sleeper, g, make(chan struct{}, 1))
	defer w.Stop()
	booked := time.Now()
	require.Eventually(t, func() bool { return second.Complete(booked.Add(3 * time.Second)) }, inTheEnd, 5*time.Millisecond)

	forgets(t, client)
	book(t, first, limit) // it knew of one start
	require.Eventually(t, func() bool {
		st := status(t, first, limit)
		return st.Used+st.Waiting >= 6
	}, inTheEnd, 5*time.Millisecond, "nobody told")
}

// TestP1_NodeCountsFromWhereItNamed asks for starts of one node while the way to
// Redis is blocked. The node named each at another time, but all would have begun
// when the answers came, so the age of each tells how late it is.
func TestP1_NodeCountsFromWhereItNamed(t *testing.T) {
	onTap(t, isScript, func(t *testing.T, _ *redis.Client, s *redisstore.Store, tap *tap) {
		all := charge("all", store.PerHour(1000))
		mine := own(charge("mine", store.SlidingWindow(1, 100*time.Millisecond)))
		bookAside(t.Context(), s, booking(all))
		var got []**outcome
		for range 3 {
			time.Sleep(150 * time.Millisecond)
			got = append(got, bookAside(t.Context(), s, booking(mine, all)))
		}
		tap.open()
		for i, o := range got {
			require.NoError(t, (*o).err)
			require.True(t, (*o).grant.OK)
			require.Zero(t, (*o).grant.Wait)
			require.Equal(t, time.Duration(2-i)*150*time.Millisecond, (*o).grant.Age, "%d", i)
		}
	})
}

// TestP1_RecordOutlivesLease loses the answer that a request may fly. When Redis
// can be reached again the lease is over and another flies, but the record of the
// call still said yes.
func TestP1_RecordOutlivesLease(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		a, _ := loaded(t, c, nil)
		b := redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock)
		away := &says{}
		c.AddHook(away)
		c.AddHook(middle(func(cmd redis.Cmder, next func() error) error {
			err := next()
			if err == nil && away.calls.Load() == 0 {
				away.set(errAway)
				return failing(cmd, errAway)
			}
			return err
		}))
		one := charge("one", store.Concurrency(1))
		got := bookAside(t.Context(), a, booking(one))
		refused(t, b, one)
		time.Sleep(25 * time.Second)
		k, g := board(t, b, one)
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*got).err)
		require.False(t, (*got).grant.OK)
		require.NotNil(t, (*got).grant.Ready)
		b.Release(k, g)
		require.True(t, woken((*got).grant, soon))
		time.Sleep(2 * time.Second) // calls that are left behind come to their end
	})
}

// TestP12_MoreLossesThanNames: a window has more losses than a row has names of generations. Then
// starts may count twice, if two programs know different ones of generations without a name. No start is missing.
func TestP12_MoreLossesThanNames(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	exact, all := 0, 0
	t.Run("", func(t *testing.T) {
		for _, seed := range seeds(soak.Seeds(20, 3)) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				lossesAmongPrograms(t, seed, 20, func(t *testing.T, want, booked int) {
					require.GreaterOrEqual(t, booked, want)
					exact += map[bool]int{true: 1}[booked == want]
					all++
				})
			})
		}
	})
	require.Greater(t, exact, all*9/10)
}

// TestP12_OlderThanAllNames has two programs tell of starts in a generation that is older than all names.
func TestP12_OlderThanAllNames(t *testing.T) {
	t.Parallel()
	const losses = redisstore.Names + 1
	run := func(name string, test func(t *testing.T, a, b *redisstore.Store, start func(*redisstore.Store, int), lose func(), booked func() int)) {
		t.Run(name, func(t *testing.T) {
			forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
				c := charge("budget", store.PerHour(4000))
				a, b := redisstore.NewAt(client, redisstore.Options{}, bubbleClock), redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
				start := func(s *redisstore.Store, times int) {
					for range times {
						require.LessOrEqual(t, bookLost(t, s, c), telling)
					}
				}
				lose := func() {
					time.Sleep(2 * time.Second) // generations rise by the second
					forget()
				}
				test(t, a, b, start, lose, func() int { return booked(t, b, c) })
			})
		})
	}
	// The first program tells first after each loss, and never hears what the second one told then.
	run("one knows all that the other knows", func(t *testing.T, a, b *redisstore.Store, start func(*redisstore.Store, int), lose func(), booked func() int) {
		for i := range 2 * losses {
			lose()
			start(a, 1)
			start(b, 2)
			require.Equal(t, 3*(i+1), booked())
		}
	})
	// The second program is silent for so long that no name is known to both.
	for _, first := range []string{"the row's", "the silent one's"} {
		run("each knows what the other does not, "+first+" first", func(t *testing.T, a, b *redisstore.Store, start func(*redisstore.Store, int), lose func(), booked func() int) {
			start(a, 1)
			start(b, 10)
			for range losses {
				lose()
				start(a, 1)
			}
			lose()
			if first == "the row's" {
				start(a, 1)
				start(b, 1)
			} else {
				start(b, 1)
				start(a, 1)
			}
			all := 11 + losses + 2
			require.GreaterOrEqual(t, booked(), all)
			require.LessOrEqual(t, booked(), all+2, "those may be counted twice that both know, and that have no name")
			lose()
			start(a, 1)
			start(b, 1)
			require.GreaterOrEqual(t, booked(), all+2)
		})
	}
}

const (
	forgetSeeds = 8
	forgetOps   = 500
)

// TestP12_ManyLosses lets nodes book and cancel while the server forgets again
// and again: everything, or what happened since some moment. Every start is held
// against all starts that anybody knew who has called since.
func TestP12_ManyLosses(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	server := redistest.Shared(t)
	for _, limit := range []store.Limit{
		store.SlidingWindow(5, 10*time.Second), store.SlidingWindow(300, 10*time.Second),
		store.FixedWindow(7, 10*time.Second), store.LeakyBucket(4, 10*time.Second),
		store.TokenBucket(2, 5*time.Second, 6),
	} {
		for seed := range uint64(soak.Seeds(forgetSeeds, 2)) {
			t.Run(fmt.Sprint(limit, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newForgetful(t, server.Client(t), limit, seed)
					for f.op = range forgetOps {
						f.step()
					}
					f.recovers()
				})
			})
		}
	}
}

// Ids are a set of starts.
type ids map[int]bool

// A forgetful server, its nodes, and who can know of which start.
type forgetful struct {
	*testing.T
	rng    *rand.Rand
	op     int
	charge store.Charge
	client *redis.Client
	nodes  []*redisstore.Store

	starts ledger
	latest int64 // the latest start ever granted
	stored ids   // what the server knows
	known  []ids // what each node knows
	grants []bookedBy
	backup *backup
}

// A bookedBy can be given back.
type bookedBy struct {
	node, id int
	held     held
}

// A backup is what a replica has when its master dies.
type backup struct {
	stored ids
	rows   map[string]string
}

func newForgetful(t *testing.T, client *redis.Client, limit store.Limit, seed uint64) *forgetful {
	forgets(t, client)
	f := &forgetful{
		T: t, rng: rand.New(rand.NewPCG(seed, 12)), charge: charge("budget", limit), client: client,
		starts: ledger{limit: limit, at: map[int]int64{}, cost: map[int]int{}}, stored: ids{},
	}
	for range 3 {
		f.nodes = append(f.nodes, redisstore.NewAt(client, redisstore.Options{}, bubbleClock))
		f.known = append(f.known, ids{})
	}
	return f
}

// step does one operation.
func (f *forgetful) step() {
	switch r := f.rng.IntN(100); {
	case r < 55:
		f.book(f.rng.IntN(len(f.nodes)))
	case r < 65:
		f.cancel()
	case r < 69:
		f.lose(&backup{stored: ids{}})
	case r < 72:
		f.backup = f.back()
	case r < 75 && f.backup != nil:
		f.lose(f.backup)
	case r < 76:
		time.Sleep(3 * f.charge.Span())
	default:
		time.Sleep(time.Duration(1+f.rng.IntN(2_000_000)) * time.Microsecond)
	}
}

// book books by one node and judges the start.
func (f *forgetful) book(node int) {
	c := f.charge
	if most := c.Limit.Capacity(); c.Limit.Kind() != store.KindLeakyBucket {
		c.Cost = 1 + f.rng.IntN(min(3, most))
		if most > 100 {
			c.Cost = 1 + f.rng.IntN(most/10)
		}
	}
	k := bookingFor([]time.Duration{0, 5 * time.Second, 25 * time.Second, -1}[f.rng.IntN(4)], c)
	g := ask(f.T, f.nodes[node], k)
	now := time.Now()

	maps.Copy(f.stored, f.known[node])
	latest := max(f.latest, now.UnixMicro())
	require.LessOrEqual(f, now.Add(g.Wait).UnixMicro(), latest+f.farthest(), "operation %d: too late", f.op)
	if g.OK {
		id := len(f.grants)
		f.starts.at[id], f.starts.cost[id] = now.Add(g.Wait).UnixMicro(), c.Cost
		f.stored[id] = true
		require.True(f, f.starts.allows(f.stored, id), "operation %d: too many around %v", f.op, now.Add(g.Wait))
		f.latest = max(f.latest, f.starts.at[id])
		f.grants = append(f.grants, bookedBy{node, id, held{booking: k, grant: g}})
	}
	f.known[node] = maps.Clone(f.stored)
}

// farthest is how long after the latest start another one must have room.
func (f *forgetful) farthest() int64 {
	d := f.charge.Span()
	switch f.charge.Limit.Kind() {
	case store.KindFixedWindow:
		d = f.charge.Limit.Per()
	case store.KindLeakyBucket:
		d *= time.Duration(f.charge.Limit.N())
	case store.KindTokenBucket: // each node may have emptied one, unaware of the others
		d *= time.Duration(len(f.nodes))
	}
	return d.Microseconds()
}

// cancel gives one of the latest starts back, which the server may have lost.
func (f *forgetful) cancel() {
	if len(f.grants) == 0 {
		return
	}
	b := f.grants[len(f.grants)-1-f.rng.IntN(min(10, len(f.grants)))]
	if _, ok := f.starts.at[b.id]; ok {
		delete(f.starts.at, b.id)
		f.nodes[b.node].Cancel(b.held.booking, b.held.grant)
	}
}

// back makes a backup of all keys.
func (f *forgetful) back() *backup {
	b := &backup{maps.Clone(f.stored), make(map[string]string)}
	keys, err := f.client.Keys(f.Context(), "*").Result()
	require.NoError(f, err)
	for _, key := range keys {
		b.rows[key], err = f.client.Dump(f.Context(), key).Result()
		require.NoError(f, err)
	}
	return b
}

// lose takes the server back to a backup.
func (f *forgetful) lose(b *backup) {
	time.Sleep(time.Microsecond) // no server loses anything and serves in no time
	require.NoError(f, f.client.FlushDB(f.Context()).Err())
	for key, row := range b.rows {
		require.NoError(f, f.client.Restore(f.Context(), key, time.Hour, row).Err())
	}
	f.stored = maps.Clone(b.stored)
}

// recovers requires that nothing stays behind: when all is over, a whole window
// can be used.
func (f *forgetful) recovers() {
	time.Sleep(time.Until(time.UnixMicro(f.latest)) + 3*f.charge.Span() + f.charge.Limit.Per())
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // the edge of a window
	c := f.charge
	if c.Limit.Kind() != store.KindLeakyBucket {
		c.Cost = c.Limit.Capacity()
	}
	require.Zero(f, book(f.T, f.nodes[0], c))
	requireSmall(f.T, f.client)
}

// A ledger has every start that was granted and not given back, by the server's
// clock, and judges them by the definition of the limit.
type ledger struct {
	limit store.Limit
	at    map[int]int64
	cost  map[int]int
}

// allows reports whether the limit allows the start id beside the known ones.
func (l ledger) allows(known ids, id int) bool {
	at := l.at[id]
	var all []int64 // a start of cost c counts as c starts
	for k := range known {
		if t, ok := l.at[k]; ok {
			all = append(all, slices.Repeat([]int64{t}, l.cost[k])...)
		}
	}
	slices.Sort(all)
	n, per := l.limit.N(), l.limit.Per().Microseconds()
	switch l.limit.Kind() {
	case store.KindFixedWindow:
		in := func(t int64) bool { return t/per == at/per }
		return len(all)-len(slices.DeleteFunc(all, in)) <= n
	case store.KindLeakyBucket:
		return !crowded(all, at, 1, (per+int64(n)-1)/int64(n))
	case store.KindTokenBucket:
		return hasRoom(all, at, l.limit)
	}
	return !crowded(all, at, n, per+1)
}

// crowded reports whether more than n starts, at among them, lie within less than
// span.
func crowded(all []int64, at int64, n int, span int64) bool {
	for i := n; i < len(all); i++ {
		if all[i]-all[i-n] < span && all[i-n] <= at && at <= all[i] {
			return true
		}
	}
	return false
}

// hasRoom reports whether the start at, which is one of all, finds room in a bucket
// that the others, where they were too many, have left full.
func hasRoom(all []int64, at int64, l store.Limit) bool {
	n, per := int64(l.N()), l.Per().Microseconds()
	level, last, full := int64(0), all[0], int64(l.Capacity())*per
	for i := 0; i < len(all) && all[i] <= at; i++ {
		level = max(0, level-n*(all[i]-last)) + per
		last = all[i]
		if last < at {
			level = min(level, full)
		}
	}
	return level <= full
}
