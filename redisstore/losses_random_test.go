package redisstore_test

import (
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
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

const (
	forgetSeeds = 8
	forgetOps   = 500
)

// TestP12_ManyLosses lets nodes book and cancel while the server forgets again
// and again: everything, or what happened since some moment. Every start is held
// against all starts that anybody knew who has called since.
func TestP12_ManyLosses(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, limit := range []store.Limit{
		store.SlidingWindow(5, 10*time.Second), store.SlidingWindow(300, 10*time.Second),
		store.FixedWindow(7, 10*time.Second), store.LeakyBucket(4, 10*time.Second),
		store.TokenBucket(2, 5*time.Second, 6),
	} {
		for seed := range uint64(soak.Most(forgetSeeds, 2)) {
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
		if last = all[i]; last < at {
			level = min(level, full)
		}
	}
	return level <= full
}
