package wire_test

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// update writes the golden frames anew.
var update = flag.Bool("update", false, "write testdata anew")

// budgets knows the same of every budget.
type budgets struct{}

func (budgets) Key(b *store.Budget) string { return "key:" + b.Policy }

// Known implements [wire.Budgets].
func (budgets) Known(*store.Budget, string, wire.Boundaries) wire.Known {
	k := wire.Known{
		Record: 6, Elapsed: 250 * time.Millisecond, Clock: wire.ElapsedKnown, ServerTime: 900_000, AtLeast: time.Millisecond,
		Generations: [wire.Lives + 1]wire.Generation{{ID: 77, Count: 12}, {ID: 66, Count: 3}, {ID: 55, Count: 2}},
		Older:       wire.Older{Count: 8, Mark: 99},
	}
	k.Starts.Add(wire.Sample{Ago: time.Second, Count: 5})
	k.Starts.Add(wire.Sample{Ago: 2 * time.Second, Count: 7})
	return k
}

// charge returns a charge of cost 2 for the budget of a policy with that name.
func charge(name string, l store.Limit) store.Charge {
	c := store.Charge{Limit: l, Jitter: 10 * time.Millisecond, Cost: 2}
	c.Budget.Policy, c.Budget.Group = name, "group"
	copy(c.Budget.Key[:], name)
	return c
}

// requests returns calls of each kind of operation, limit and state, by name.
func requests() map[string]wire.BookRequest {
	window, bucket := charge("window", store.PerSecond(20)), charge("bucket", store.TokenBucket(5, time.Second, 9))
	month := charge("month", store.CalendarWindow(100, store.Month, time.UTC))
	slots, free := charge("slots", store.Concurrency(3)), charge("free", store.Unlimited())
	shadow := charge("shadow", store.PerHour(3))
	shadow.Shadow = true
	ticket := wire.Ticket{Budget: window.Budget.Key, Line: 4, Number: 31, State: wire.HadStart, Round: 2}
	report := wire.Report{
		Key: "key:slots:flight", Budget: slots.Budget.Key, Limit: 3, Sequence: 8, Held: 1,
		Generation: wire.Generation{ID: 55, Count: 4}, Latest: 800_000, Most: 8,
		Waiters: []wire.Waiter{{Arrival: 700_000, Cost: 1, KeepFree: 2, Behind: 3}},
	}
	of := func(ops ...wire.Op) wire.BookRequest {
		q := wire.BookRequest{Record: "record", Number: 7, Shared: "shared", Node: "node", Own: "own:"}
		for i := range ops {
			ops[i].Callers = max(1, ops[i].Callers)
			q.Ops = append(q.Ops, &ops[i])
		}
		return q
	}
	all := map[string]wire.BookRequest{
		"reserve":       of(wire.Op{Charges: []store.Charge{window}, MaxWait: 1_000_000, Horizon: time.Second, Class: 2}),
		"reserve_many":  of(wire.Op{Charges: []store.Charge{window}, MaxWait: wire.AnyWait, Callers: 5}, wire.Op{Charges: []store.Charge{window, bucket}, NotBefore: time.Second, Spread: time.Millisecond}),
		"reserve_again": of(wire.Op{Charges: []store.Charge{window}, Start: 1_100_000, Returns: true, Informed: true}),
		"calendar":      of(wire.Op{Charges: []store.Charge{month}}),
		"shadow":        of(wire.Op{Charges: []store.Charge{window, shadow}}),
		"tickets":       of(wire.Op{Charges: []store.Charge{free, window}, Tickets: []wire.Ticket{ticket}}),
		"cancel":        of(wire.Op{Kind: wire.Cancel, Charges: []store.Charge{window}, Start: 1_100_000}),
		"settle":        of(wire.Op{Kind: wire.Settle, Charges: []store.Charge{free, window}, Costs: []int{1, 4}, Start: 1_100_000}),
		"renew":         of(wire.Op{Kind: wire.Renew, Charges: []store.Charge{window}, Tickets: []wire.Ticket{ticket}, Again: time.Second}),
	}
	held := of(wire.Op{Charges: []store.Charge{window, slots}, Arrival: 700_000})
	held.Reports = []wire.Report{report}
	held.Pauses = []wire.Pause{{Key: "key:window", Left: time.Minute}}
	shut := of(wire.Op{Charges: []store.Charge{free, window}})
	shut.Rows = map[[16]byte]bool{free.Budget.Key: true}
	late := of(wire.Op{Charges: []store.Charge{window}})
	late.Age = 3 * time.Second
	limited := charge("free", store.PerSecond(20))
	all["concurrency"], all["gate_shut"], all["repeated"] = held, shut, late
	all["gate_limited"] = of(wire.Op{Charges: []store.Charge{free}}, wire.Op{Charges: []store.Charge{limited}})
	all["all_now"] = of(wire.Op{Charges: []store.Charge{window}, Callers: 2}, wire.Op{Charges: []store.Charge{window, free}})
	shared := window
	shared.Share = store.Share{ID: 1 << 52, Weight: 8}
	all["share"] = of(wire.Op{Charges: []store.Charge{shared}, MaxWait: wire.AnyWait, Horizon: time.Second, Class: 2,
		Tickets: []wire.Ticket{{Budget: window.Budget.Key, Line: 9, Number: 3, Share: 1 << 52}}})
	return all
}

// boundaries are the boundaries of a call in January 1970.
var boundaries = wire.Boundaries{Now: 1_000_000, Until: 1_000_000, Known: true}

// numbers returns the numbers of a frame.
func numbers(f wire.Frame) (all []int64) {
	for i := range f.Size() {
		all = append(all, f.At(i))
	}
	return all
}

// golden compares v, written as JSON, with a file of testdata. With -update it writes the file first.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	file := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(text))
}

// A told is what a script is told.
type told struct {
	Keys  []string
	Frame []int64
	More  []any
}

// tell returns what a call tells its script. seed is the index of the random number in the frame, which is left out, or below 0 if there is none.
func tell(c wire.Call, seed int) told {
	f := numbers(c.Frame)
	if seed >= 0 {
		f[seed] = 0
	}
	return told{c.Keys, f, c.More}
}

// TestBookFrames: what the script of bookings is told does not change unnoticed.
func TestBookFrames(t *testing.T) {
	for name, q := range requests() {
		t.Run(name, func(t *testing.T) { golden(t, "book_"+name, tell(q.Write(boundaries, budgets{}).Call, 1)) })
	}
}

// TestFrames: what the other scripts are told does not change unnoticed.
func TestFrames(t *testing.T) {
	window, slots := charge("window", store.PerSecond(20)), charge("slots", store.Concurrency(3))
	for name, c := range map[string]wire.Call{
		"pause":     wire.PauseRequest{Key: "key", Charge: &window, Shared: "shared", Length: time.Second, Ago: time.Second, Took: time.Millisecond, Start: 5}.Call(boundaries),
		"resume":    wire.PauseRequest{Key: "key", Charge: &slots, Shared: "shared", Lift: true}.Call(boundaries),
		"reconcile": wire.ReconcileRequest{Key: "key", Charge: &window, Shared: "shared", Left: 3, Reset: time.Second, Age: 5, Generation: 77}.Call(boundaries),
		"status":    wire.StatusRequest{Key: "key", Charge: &window}.Call(boundaries),
		"pauses":    wire.PausesRequest{Keys: []string{"a", "b"}}.Call(boundaries),
		"heartbeat": wire.HeartbeatRequest{Key: "key", Node: "node", Heartbeat: wire.Heartbeat{Kind: wire.Beat, Due: 5, Divisor: 2, Nodes: 3}}.Call(boundaries),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, tell(c, -1)) })
	}
}

// line is the part of a reply about a line.
var line = []int64{9, 5, 1, 7, 1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60}

// budget is the part of a reply about a row with a line.
var budget = append([]int64{77, 12, 4, 1_200_000, 3, 66, 3, 8, 99, 1, 55, 2}, line...)

// replies returns what the script may answer to each of the requests, by name.
func replies() map[string][]int64 {
	begin := []int64{1_000_000, 0, 7, 0}
	return map[string][]int64{
		"reserve":       slices.Concat(begin, []int64{1, 4, 3_000_000, 1, 0, 4_000_000, 1, 1, 9, 3, 0, 0, 0}, budget),
		"reserve_many":  slices.Concat(begin, []int64{2, 1, 1_000_000, 0, 0, 3, 0, 2_000_000, 1, 1_900_000, 1, 3, 1_500_000, 0, 0}, budget, budget),
		"reserve_again": slices.Concat(begin, []int64{1, 1, 1_200_000, 1, 0}, budget),
		"calendar":      slices.Concat(begin, []int64{1, 0, 9_000_000, 1, 0}, budget),
		"shadow":        slices.Concat(begin, []int64{1, 1, 1_000_000, 0, 0, 500}, budget, budget),
		"tickets":       slices.Concat(begin, []int64{1, 4, 3_000_000, 1, 0, 3_000_000, 1, 1, 4, 31, 2, 2, 0}, budget),
		"share": slices.Concat(begin, []int64{1, 4, 3_000_000, 1, 0, 3_000_000, 1, 1, 9, 3, 1, 0, 1 << 52}, []int64{77, 12, 4, 1_200_000, 6}, line,
			[]int64{2, 2, 1 << 52, 3, 8, 70, 80, 1, 3, 1, 5, 6, 90, 95, 0}),
		"cancel":       slices.Concat(begin, []int64{1, 0, 1_100_000, 0, 0}, budget),
		"settle":       slices.Concat(begin, []int64{1, 0, 1_100_000, 0, 0}, budget),
		"renew":        slices.Concat(begin, []int64{1, 0, 1_000_000, 0, 0}, budget),
		"concurrency":  slices.Concat(begin, []int64{1, 5, 700_000, 2, 0}, budget, []int64{55, 5, 2, 250, 1, 700_000}),
		"gate_shut":    slices.Concat(begin, []int64{1, 0, 5_000_000, 1, 5_000_000}, budget, budget),
		"gate_limited": slices.Concat(begin, []int64{1, 1, 1_000_000, 0, 0, 1, 0, 5_000_000, 1, 0}, budget),
		"all_now":      slices.Concat(begin, []int64{0, 1_000_000}, budget[:4], []int64{0}),
		"repeated":     slices.Concat([]int64{4_000_000, 1_000_000, 7, 2_000}, []int64{1, 1, 1_000_000, 0, 0}, budget),
	}
}

// TestBookReplies: what the answers of the script of bookings mean does not change
// unnoticed. No answer makes sense without its end, or with one more number.
func TestBookReplies(t *testing.T) {
	answers := replies()
	for name, q := range requests() {
		t.Run(name, func(t *testing.T) {
			call := q.Write(boundaries, budgets{})
			f := wire.Frame(nil).Add(answers[name]...)
			reply, err := call.Read(f)
			require.NoError(t, err)
			for i := range reply.Budgets {
				require.NotNil(t, reply.Budgets[i].Charge)
				reply.Budgets[i].Charge = nil
			}
			golden(t, "reply_"+name, reply)
			for n := range f.Size() {
				_, err := call.Read(f[:8*n])
				require.ErrorIs(t, err, wire.ErrReply, "%d of %d numbers", n, f.Size())
			}
			_, err = call.Read(f.Add(0))
			require.ErrorIs(t, err, wire.ErrReply)

			// With one wrong number the answer may make sense or not. No number is believed before it is checked.
			for i := range answers[name] {
				for _, wrong := range []int64{-1, 0, 1, 2, 3, 4, 5, 1 << 52, math.MinInt64, math.MaxInt64} {
					other := slices.Clone(answers[name])
					other[i] = wrong
					require.NotPanics(t, func() { _, _ = call.Read(wire.Frame(nil).Add(other...)) }, "number %d is %d", i, wrong)
				}
			}
		})
	}
}

// FuzzReplies: whatever is answered, what is read makes sense.
func FuzzReplies(f *testing.F) {
	all := requests()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	answers := replies()
	for i, name := range names {
		f.Add(uint8(i), string(wire.Frame(nil).Add(append([]int64{0}, answers[name]...)...)))
		f.Add(uint8(i), string(wire.Frame(nil).Add(1, 5, 9)))
		f.Add(uint8(i), string(wire.Frame(nil).Add(3, 5, 2, 9)))
	}
	window := charge("window", store.PerSecond(20))
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		q := all[names[int(kind)%len(names)]]
		call := q.Write(boundaries, budgets{})
		head, frame, err := wire.ReadHead(text, call.Keys)
		if err != nil {
			return
		}
		for _, g := range head.Gates {
			require.Contains(t, call.Keys, g.Key)
		}
		if head.Status != wire.Done {
			return
		}
		if st, err := (wire.StatusRequest{Key: "key", Charge: &window}).Read(frame); err == nil {
			require.GreaterOrEqual(t, st.Wait, time.Duration(0))
			require.GreaterOrEqual(t, st.Paused, time.Duration(0))
			require.GreaterOrEqual(t, st.Repeated, 0)
		}
		_, _ = wire.PauseRequest{Charge: &window}.Read(frame)
		_, _ = wire.ReconcileRequest{}.Read(frame)
		_, _ = wire.PausesRequest{Keys: []string{"a", "b"}}.Read(frame)
		_, _ = wire.HeartbeatRequest{}.Read(frame)
		reply, err := call.Read(frame)
		if err != nil {
			return
		}
		var callers []wire.Op
		for _, o := range q.Ops {
			callers = append(callers, slices.Repeat([]wire.Op{*o}, o.Callers)...)
		}
		require.Len(t, reply.Outcomes, len(callers))
		require.Len(t, reply.Reports, len(q.Reports))
		for i, o := range reply.Outcomes {
			charges := callers[i].Charges
			require.True(t, o.Charge >= -1 && o.Charge < len(charges))
			require.Equal(t, o.State == wire.InLine, len(o.Tickets) > 0)
			require.True(t, o.Delays == nil || len(o.Delays) == len(charges))
			require.True(t, !o.Booked() || o.At > 0)
			for _, k := range o.Tickets {
				require.True(t, slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Budget.Key == k.Budget }))
			}
		}
	})
}
