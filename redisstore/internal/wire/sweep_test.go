package wire_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// strangers know nothing of any budget.
type strangers struct{ budgets }

// Known implements [wire.Budgets].
func (strangers) Known(*store.Budget, string, wire.Boundaries) wire.Known { return wire.Known{} }

// TestP1_SweepIsOnlyFaster: equal callers of one operation get the starts that they get from a
// script whose searches begin anew for each of them, and the rows are the same. In the seeds from 3,000 on
// the windows are large, and the callers of every other call have given a start up, so they keep behind no start.
func TestP1_SweepIsOnlyFaster(t *testing.T) {
	soak.WithoutRace(t)
	source := wire.BookScript.Source()
	for old, new := range map[string]string{
		"if not t or s.shadow or":                                  "if true or",
		"if want.horizon > 0 and #list == 1 and #claims == 0 then": "if false then",
	} {
		require.Equal(t, 1, strings.Count(source, old), "premise: the line is there")
		source = strings.Replace(source, old, new, 1)
	}
	anew := wire.FromSource(source)
	server := redistest.Single(t)
	client := server.Client(t)
	inSeeds(t, 4_000, 400, append(seeds(40), 536, 1173, 1564, 2528, 3126, 3730), func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		require.NoError(t, client.FlushDB(t.Context()).Err())
		sizes := allSizes
		if seed >= 3_000 {
			sizes = []int{130, 200, 400, 700}
		}
		all := []store.Charge{randomWindow(r, "one", sizes), randomWindow(r, "two", sizes)}
		now := int64(1_000_000_000)
		for call := range 25 {
			q := &wire.BookRequest{Number: int64(call + 1)}
			if call == 0 && r.IntN(4) == 0 {
				q.Pauses = []wire.Pause{{Key: "key:one", Left: time.Duration(r.IntN(2000)) * time.Millisecond}}
			}
			for range 1 + r.IntN(3) {
				q.Ops = append(q.Ops, randomOp(r, all))
				q.Ops[len(q.Ops)-1].Returns = seed >= 3_000 && call%2 == 1
			}
			c := q.Write(wire.Boundaries{Now: now, Until: now + 1_000_000}, strangers{}).Call
			want := play(t, client, anew, c, "anew:", now)
			require.Equal(t, want, play(t, client, wire.BookScript, c, "", now), "seed %d, call %d", seed, call)
			now += r.Int64N(int64(200 * time.Millisecond / time.Microsecond))
		}
	})
}

// TestP5_EqualCallersAsOneByOne: equal callers of one operation get the starts that they get from operations of one
// caller each, so none starts before an equal caller that came earlier. Runs are left out: all callers of a run keep the pace
// that the first one found.
func TestP5_EqualCallersAsOneByOne(t *testing.T) {
	const runs = "if s.fits == 1 or"
	require.Equal(t, 1, strings.Count(wire.BookScript.Source(), runs), "premise: the line is there")
	script := wire.FromSource(strings.Replace(wire.BookScript.Source(), runs, "if true or", 1))
	client := redistest.Single(t).Client(t)
	inSeeds(t, 1_000, 100, append(seeds(10), 147, 174), func(t *testing.T, seed uint64) {
		if seed == 780 {
			return // a start joins two entries, and the last of 32 callers has no room beside the wider one; all at once they have
		}
		r := rand.New(rand.NewPCG(seed, 97))
		require.NoError(t, client.FlushDB(t.Context()).Err())
		all := []store.Charge{randomWindow(r, "one", allSizes), randomWindow(r, "two", allSizes)}
		now := int64(1_000_000_000)
		for call := range 25 {
			together, apart := &wire.BookRequest{Number: int64(call + 1)}, &wire.BookRequest{Number: int64(call + 1)}
			callers := 0
			for range 1 + r.IntN(3) {
				op := randomOp(r, all)
				if op.Horizon > 0 {
					op.Horizon = time.Hour // so none stands in line
				}
				single := *op
				single.Callers = 1
				together.Ops = append(together.Ops, op)
				apart.Ops = append(apart.Ops, slices.Repeat([]*wire.Op{&single}, op.Callers)...)
				callers += op.Callers
			}
			starts := func(q *wire.BookRequest, prefix string) []float64 {
				c := q.Write(wire.Boundaries{Now: now, Until: now + 1_000_000}, strangers{}).Call
				return startsOf(play(t, client, script, c, prefix, now)[0].([]float64), callers)
			}
			require.Equal(t, starts(apart, "apart:"), starts(together, ""), "seed %d, call %d", seed, call)
			now += r.Int64N(int64(200 * time.Millisecond / time.Microsecond))
		}
	})
}

// TestP5_EqualReturnersAllCount: equal callers of one operation that had starts, and have to wait again, all count in the line to
// whose front they go. Otherwise newcomers would pass all of them but one.
func TestP5_EqualReturnersAllCount(t *testing.T) {
	client := redistest.Single(t).Client(t)
	c := charge("one", store.SlidingWindow(2, time.Minute))
	c.Cost = 1
	waiting := func(number int64, callers int, returns bool) int64 {
		reply := call(t, client, number, &wire.Op{
			Callers: callers, Charges: []store.Charge{c}, MaxWait: wire.AnyWait, Class: 2, Horizon: 350 * time.Millisecond, Returns: returns,
		})
		return reply.Budgets[0].Line.Waiting
	}
	require.EqualValues(t, 1, waiting(1, 3, false), "premise: two start, and the third begins a line")
	require.EqualValues(t, 1+4, waiting(2, 4, true))
}

// TestP5_TagsOfAnotherPriority: in a line that can note the tag of no further share, a newcomer takes turns with no share of another priority,
// whose tag says nothing about the newcomer's turn.
func TestP5_TagsOfAnotherPriority(t *testing.T) {
	client := redistest.Single(t).Client(t)
	number := int64(0)
	line := func(class int64, cost, callers int, shares ...uint64) []wire.Outcome {
		var ops []*wire.Op
		for _, share := range shares {
			c := charge("one", store.LeakyBucket(10, 10*time.Second))
			c.Cost, c.Share = cost, store.Share{ID: share, Weight: 1}
			ops = append(ops, &wire.Op{
				Callers: callers, Charges: []store.Charge{c}, MaxWait: wire.AnyWait, Class: class, Horizon: 350 * time.Millisecond,
			})
		}
		number++
		return call(t, client, number, ops...).Outcomes
	}
	ids := func(from, count uint64) (all []uint64) {
		for i := range count {
			all = append(all, from+i)
		}
		return all
	}
	line(2, 1, 1, 1)                  // starts
	line(3, 1, 20, 2)                 // low priority, with a lane
	line(2, 1, 1, ids(3, 101)...)     // all other lanes
	line(2, 8, 1, ids(1000, 1024)...) // all tags, each eight turns ahead
	last := line(3, 1, 1, 2)[0].At
	first := line(3, 1, 1, 5000)[0].At
	require.Less(t, first, last-int64(18*time.Second/time.Microsecond), "behind one or two of the 21 callers of the other share")
	require.Greater(t, line(3, 1, 1, 5001)[0].At, first, "the line is still there")
}

// TestP5_ARunLeavesItsPartToOthers: a run beside starts of others at the begin of a part is of no more callers
// than the pace allows beside these starts.
func TestP5_ARunLeavesItsPartToOthers(t *testing.T) {
	const n, per, now, others = 1536, 200 * time.Millisecond, 1_000_000_000, 6
	c := charge("one", store.SlidingWindow(n, per))
	c.Pace, c.Cost = per/n, 1
	op := func(callers int, class int64, horizon time.Duration) *wire.Op {
		return &wire.Op{Callers: callers, Charges: []store.Charge{c}, MaxWait: wire.AnyWait, Class: class, Horizon: horizon}
	}
	q := &wire.BookRequest{Number: 1, Ops: []*wire.Op{op(n, 2, 0), op(others, 2, time.Hour), op(40, 1, time.Hour)}}
	w := q.Write(wire.Boundaries{Now: now, Until: now + 1_000_000}, strangers{}).Call
	answer := play(t, redistest.Single(t).Client(t), wire.BookScript, w, "", now)[0].([]float64)
	starts := startsOf(answer, n+others+40)[n:]
	require.Greater(t, starts[0], float64(now), "premise: they wait")
	together := 0
	for _, at := range starts {
		if at == starts[0] {
			together++
		}
	}
	require.Greater(t, together, others, "premise: they share a part")
	require.LessOrEqual(t, together, n/128+1)
}

// call makes a call with that number for operations, always at the same time, and returns the reply.
func call(t *testing.T, client *redis.Client, number int64, ops ...*wire.Op) wire.BookReply {
	t.Helper()
	const now = 1_000_000_000
	q := &wire.BookRequest{Number: number, Ops: ops}
	w := q.Write(wire.Boundaries{Now: now, Until: now + 1_000_000}, strangers{})
	var f wire.Frame
	for _, n := range play(t, client, wire.BookScript, w.Call, "", now)[0].([]float64) {
		f = f.Add(int64(n))
	}
	reply, err := w.Read(f.From(1)) // behind the status
	require.NoError(t, err)
	return reply
}

// startsOf returns when the callers of a call start, by its answer: 0 stands for a caller that does not start. callers is how many there are.
func startsOf(answer []float64, callers int) (all []float64) {
	for answer = answer[5:]; len(all) < callers; answer = answer[5:] {
		if answer[0] == wire.AllNow {
			return slices.Repeat(answer[1:2], callers)
		}
		at := answer[2]
		if wire.State(answer[1]) != wire.Booked {
			at = 0
		}
		all = append(all, slices.Repeat([]float64{at}, int(answer[0]))...)
	}
	return all
}

// TestP1_TextOfEntriesIsKept: a row whose stored entries are kept as text answers as one whose entries are all
// written anew, also when starts are given back or settled and when the clock is set.
func TestP1_TextOfEntriesIsKept(t *testing.T) {
	soak.WithoutRace(t)
	const kept = "r.kept, r.raw = F, L, N, k - 1, raw"
	require.Equal(t, 1, strings.Count(wire.BookScript.Source(), kept), "premise: the line is there")
	anew := wire.FromSource(strings.Replace(wire.BookScript.Source(), kept, "r.kept, r.raw = F, L, N, 0, ''", 1))
	client := redistest.Single(t).Client(t)
	inSeeds(t, 3_000, 500, seeds(60), func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 8))
		require.NoError(t, client.FlushDB(t.Context()).Err())
		c := randomWindow(r, "one", allSizes)
		now, starts := int64(1_000_000_000), []int64(nil)
		for call := range 40 {
			op := randomOp(r, []store.Charge{c, c})
			op.Charges = op.Charges[:1]
			if len(starts) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(starts))
				op.Kind, op.Start, op.Callers = []wire.Kind{wire.Reserve, wire.Cancel, wire.Settle}[r.IntN(3)], starts[i], 1
				op.Costs = []int{r.IntN(3)}
				starts = slices.Delete(starts, i, i+1)
			}
			q := &wire.BookRequest{Number: int64(call + 1), Ops: []*wire.Op{op}}
			w := q.Write(wire.Boundaries{Now: now, Until: now + 1_000_000}, strangers{}).Call
			want := play(t, client, anew, w, "anew:", now)[0].([]float64)
			require.Equal(t, want, play(t, client, wire.BookScript, w, "", now)[0], "seed %d, call %d", seed, call)
			if op.Kind == wire.Reserve && len(want) > 7 && wire.State(want[6]) == wire.Booked {
				starts = append(starts, int64(want[7]))
			}
			if now += r.Int64N(int64(100 * time.Millisecond / time.Microsecond)); r.IntN(20) == 0 {
				now -= r.Int64N(int64(500 * time.Millisecond / time.Microsecond))
			}
		}
	})
}

// TestP3_RunsCostWhatTheyAre: the last run of a call may be of fewer callers than the others, and
// charges no more than these callers.
func TestP3_RunsCostWhatTheyAre(t *testing.T) {
	client := redistest.Single(t).Client(t)
	c := charge("one", store.SlidingWindow(5120, time.Second))
	c.Pace, c.Cost = time.Second/5120, 1
	for call, callers := range []int{5120, 23} {
		op := &wire.Op{Callers: callers, Charges: []store.Charge{c}, MaxWait: wire.AnyWait, Class: 2, Horizon: 2 * time.Second}
		q := &wire.BookRequest{Number: int64(call + 1), Ops: []*wire.Op{op}}
		answer := play(t, client, wire.BookScript, q.Write(wire.Boundaries{Now: 1_000_000_000}, strangers{}).Call, "", 1_000_000_000)[0].([]float64)
		require.EqualValues(t, 5120+call*23, answer[len(answer)-4], "how many starts the row had")
	}
}

// allSizes are the limits of random windows, from tiny ones to those that are counted in parts.
var allSizes = []int{1, 2, 7, 40, 130, 700, 5000}

// randomWindow returns a charge for a sliding window of 20 ms to a second, with one of sizes as its limit.
func randomWindow(r *rand.Rand, name string, sizes []int) store.Charge {
	n := sizes[r.IntN(len(sizes))]
	c := charge(name, store.SlidingWindow(n, time.Duration(20+r.IntN(980))*time.Millisecond))
	c.Jitter = time.Duration(r.IntN(2)*35) * time.Millisecond
	c.Pace = c.Limit.Per() / time.Duration(n*(1+r.IntN(4))) * time.Duration(r.IntN(2))
	c.Cost = 1 + r.IntN(min(n, 3))
	return c
}

// randomOp returns a booking for some callers, of one charge of all or of both.
func randomOp(r *rand.Rand, all []store.Charge) *wire.Op {
	op := &wire.Op{
		Callers: 1 + r.IntN(40), Charges: all[r.IntN(2) : 1+r.IntN(2)], MaxWait: wire.AnyWait, Class: 1 + r.Int64N(3),
		Horizon: []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}[r.IntN(3)],
		Spread:  time.Duration(r.IntN(3)) * 5 * time.Millisecond,
	}
	if len(op.Charges) == 0 {
		op.Charges = all
	}
	if r.IntN(4) == 0 {
		op.MaxWait = r.Int64N(1_000_000)
	}
	if r.IntN(2) == 0 {
		op.NotBefore = time.Duration(r.IntN(600)) * time.Millisecond
	}
	return op
}

// play runs a script at the time now, on keys that begin with a prefix. It returns the numbers of the answer, and then what each key but the
// record has stored.
func play(t *testing.T, client *redis.Client, s wire.Script, c wire.Call, prefix string, now int64) []any {
	t.Helper()
	keys := []string{prefix + "record"}
	for _, key := range c.Keys[1:] {
		keys = append(keys, prefix+key)
	}
	args := c.Args(strconv.FormatInt(now, 10))
	for i, a := range args {
		if slices.Contains(c.Keys, fmt.Sprint(a)) {
			args[i] = prefix + fmt.Sprint(a)
		}
	}
	reply, err := client.EvalSha(t.Context(), s.Hash(), keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = client.Eval(t.Context(), s.Source(), keys, args...).Result()
	}
	require.NoError(t, err)
	var answer []float64
	for text := []byte(reply.(string)); len(text) > 0; text = text[8:] {
		answer = append(answer, math.Float64frombits(binary.LittleEndian.Uint64(text)))
	}
	all := []any{answer}
	for _, key := range keys[1:] {
		all = append(all, client.Get(t.Context(), key).Val())
	}
	return all
}

// inSeeds plays the known seeds, which find most faults soon. In make soak it also plays seeds below many, at equal distances: some of them, times
// $SOAK, and at most all.
func inSeeds(t *testing.T, many uint64, some int, known []uint64, play func(t *testing.T, seed uint64)) {
	all := func(t *testing.T, list []uint64) {
		for _, seed := range list {
			play(t, seed)
		}
	}
	t.Run("known", func(t *testing.T) { all(t, known) })
	t.Run("many", func(t *testing.T) {
		soak.Only(t)
		played := min(many, uint64(soak.Seeds(some, 0)))
		for i := range played {
			play(t, i*many/played)
		}
	})
}

// seeds returns the seeds below n.
func seeds(n uint64) (all []uint64) {
	for seed := range n {
		all = append(all, seed)
	}
	return all
}
