package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A modelWire is the client of the model's store. It brings the server into the state
// of a world, makes one call there, and takes the new state back: all in one
// round trip.
type modelWire struct {
	redis.UniversalClient
	t     *testing.T
	world *modelWorld
	fate  modelFate
	reply string      // to be given to the next call
	know  modelStarts // that it tells of
	age   int64       // how long ago that was done
	plan  modelPlan   // of the call
	quiet bool        // it is no booking
	done  func(w *modelWorld, args []any, p modelPlan, text string) (know modelStarts, age int64)

	there map[string]bool // the keys that the server may have
	calls int             // how many scripts ran

	results map[[16]byte]modelResult
}

// A modelCommand is how the store calls a script.
type modelCommand interface {
	redis.Cmder
	SetVal(any)
	NoRetry() bool
}

// A modelFate is what becomes of a call.
type modelFate byte

const (
	modelFine    modelFate = iota
	modelLost              // it is done, and nobody hears
	modelSlow              // it is done, and the answer takes a while
	modelHeld              // it is not done yet, and the node does not wait for it
	modelArrives           // it was done before, and here is the answer
)

// errModelAway is what a node hears that does not get an answer.
var errModelAway = errors.New("away")

// Process implements [redis.UniversalClient] for calls of scripts.
func (c *modelWire) Process(ctx context.Context, cmd redis.Cmder) error {
	ask, ok := cmd.(modelCommand)
	require.True(c.t, ok, "the store sends %v", cmd)
	if c.fate == modelArrives {
		ask.SetVal(c.reply)
		return nil
	}
	args := ask.Args()
	if c.fate == modelHeld {
		c.world.late = append(c.world.late, modelLetter{args, c.plan, c.world.truth})
		return c.refuse(ask)
	}
	text, err := c.run(ctx, args)
	if err != nil {
		ask.SetErr(err)
		return err
	}
	if v := wire.Frame(text); v.Size() > 0 && (v.At(0) == int64(wire.NeedsBoundaries) || v.At(0) == int64(wire.NeedsTime)) {
		ask.SetVal(text) // the script asks back
		return nil
	}
	if !c.quiet {
		c.know, c.age = c.done(c.world, args, c.plan, text)
	}
	switch c.fate {
	case modelLost:
		return c.refuse(ask)
	case modelSlow:
		c.reply = text
		return c.refuse(ask)
	}
	ask.SetVal(text)
	return nil
}

func (c *modelWire) refuse(ask modelCommand) error {
	ask.SetErr(errModelAway)
	return errModelAway
}

// modelSpare is added to the lifetime of keys that are restored, so that one can
// see whether the call gave them another.
const modelSpare = time.Hour

// A modelResult is what a call did in one state of the server. It is the same each
// time: the seed that the call brings is made of that state.
type modelResult struct {
	keys map[string]modelKey
	text string
}

// maxModelResults bounds how many results are kept.
const maxModelResults = 1 << 16

// run runs a script in the world, at its time.
func (c *modelWire) run(ctx context.Context, args []any) (string, error) {
	w, count := c.world, args[2].(int)
	args = slices.Clone(args)
	args[3+count] = fmt.Sprint(w.clock)
	same := c.seed(args)
	r, ok := c.results[same]
	if !ok {
		var err error
		if r, err = c.really(ctx, args); err != nil {
			return "", err
		}
		if len(c.results) == maxModelResults {
			clear(c.results)
		}
		c.results[same] = r
	}
	w.keys = maps.Clone(r.keys)
	return r.text, nil
}

// seed makes the call's seed of everything that the call depends on, and returns a name for it.
func (c *modelWire) seed(args []any) (name [16]byte) {
	count := args[2].(int)
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.world.keys)) {
		k := c.world.keys[name]
		fmt.Fprintf(h, "%s %d %d %d %d ", name, k.expires, k.know, k.at, len(k.value))
		h.Write([]byte(k.value))
	}
	blob := slices.Clone(args[4+count].([]byte))
	if !c.quiet {
		copy(blob[8:16], make([]byte, 8))
	}
	args[4+count] = blob
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			h.Write(b)
		} else {
			fmt.Fprint(h, " ", a)
		}
	}
	copy(name[:], h.Sum(nil))
	if !c.quiet {
		copy(blob[8:16], wire.Frame(nil).Add(int64(binary.LittleEndian.Uint64(name[:])>>12+1)))
	}
	return name
}

// really runs the script.
func (c *modelWire) really(ctx context.Context, args []any) (r modelResult, err error) {
	w, count := c.world, args[2].(int)
	names := make(map[string]bool)
	pipe := c.UniversalClient.Pipeline()
	var old []string
	for name := range c.there {
		if _, ok := w.keys[name]; !ok {
			old = append(old, name)
		}
	}
	if len(old) > 0 {
		pipe.Del(ctx, old...)
	}
	for name, k := range w.keys {
		pipe.Set(ctx, name, k.value, modelSpare+time.Duration(k.expires-w.clock)*time.Microsecond)
		names[name] = true
	}
	cmd := redis.NewCmd(ctx, args...)
	pipe.Process(ctx, cmd)
	for _, name := range args[3 : 3+count] {
		names[name.(string)] = true
	}
	values, lives := make(map[string]*redis.StringCmd), make(map[string]*redis.DurationCmd)
	for name := range names {
		values[name], lives[name] = pipe.Get(ctx, name), pipe.PTTL(ctx, name)
	}
	c.there = names
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return r, err
	}
	c.calls++
	r.keys = make(map[string]modelKey, len(names))
	for name, v := range values {
		if value, err := v.Result(); err == nil {
			k := modelKey{value, w.expiry(w.keys[name], lives[name].Val()), 0, 0}
			if value == w.keys[name].value {
				k.know, k.at = w.keys[name].know, w.keys[name].at
			}
			r.keys[name] = k
		}
	}
	r.text, err = cmd.Text()
	return r, err
}

// modelCoarse is how exactly lifetimes are read: the server lives in real time.
const modelCoarse = 500 * time.Millisecond

// modelNever is the expiry of a key that never expires.
const modelNever = 1 << 60

// expiry is when a key with this time to live expires; as before, if that is what it was restored
// with.
func (w *modelWorld) expiry(was modelKey, life time.Duration) int64 {
	switch {
	case life < 0:
		return modelNever
	case life > modelSpare/2 && was.expires != 0:
		return was.expires
	}
	return w.clock + wire.Micros((life + modelCoarse - 1).Truncate(modelCoarse))
}

// modelUnpadded is the script with keys that live as long as they should: the stores of
// tests have them live longer, because they live in real time.
func modelUnpadded(t *testing.T) wire.Script {
	const old, now = "IDLE, record_ms = IDLE + 3600 * 1000000, '3660000'", "IDLE = IDLE"
	require.Equal(t, 1, strings.Count(wire.BookScript.Source(), old))
	return wire.FromSource(strings.Replace(wire.BookScript.Source(), old, now, 1))
}

// A modelWriter writes a world down such that two worlds which can have no different
// future are the same. Times are told from now, and lives are told apart by the
// order in which they are met.
type modelWriter struct {
	*model
	w      *modelWorld
	now    time.Time
	births map[int64]int64
	order  []int // of the starts
	out    []byte
}

// keyOf names the world.
func (m *model) keyOf(w *modelWorld) (sum [16]byte) {
	k := modelWriter{model: m, w: w, now: time.Now(), births: map[int64]int64{0: 0}}
	k.sortStarts()
	k.num(int64(w.focus+1), w.backed, w.delay, int64(w.lost))
	k.chances()
	if w.paused > w.truth-4*m.longest() {
		k.num(w.paused - w.truth)
	}
	if l := m.limits[0]; l.Kind() == store.KindFixedWindow {
		k.num(w.clock % wire.Micros(l.Per()))
	}
	k.keys(w.keys)
	k.set(w.stored)
	for _, n := range w.nodes {
		k.node(n)
	}
	for _, l := range w.late {
		k.plan(l.plan)
		k.args(l.args)
	}
	if w.replica != nil {
		k.keys(w.replica.keys)
		k.set(w.replica.stored)
	}
	full := sha256.Sum256(k.out)
	copy(sum[:], full[:])
	return sum
}

func (k *modelWriter) num(all ...int64) {
	for _, v := range all {
		k.out = binary.LittleEndian.AppendUint64(k.out, uint64(v))
	}
}

func (k *modelWriter) text(s string) {
	k.num(int64(len(s)))
	k.out = append(k.out, s...)
}

func (k *modelWriter) birth(b int64) {
	if _, ok := k.births[b]; !ok {
		k.births[b] = int64(len(k.births))
	}
	k.num(k.births[b])
}

func (k *modelWriter) chances() {
	c := k.w.left
	k.num(int64(c.ticks), int64(c.faults), int64(c.lost), int64(c.held), int64(c.slow), int64(c.leaves), int64(c.cancels),
		int64(c.crashes), int64(c.flushes), int64(c.stale), int64(c.pauses), int64(c.backs))
}

// sortStarts writes the starts that still count, in an order of their own.
func (k *modelWriter) sortStarts() {
	for i, st := range k.w.starts {
		if max(st.at-k.w.truth, st.mark-k.w.clock) > -2*k.longest() {
			k.order = append(k.order, i)
		}
	}
	line := func(i int) []int64 {
		st := &k.w.starts[i]
		flags := int64(st.phase) << 2
		if st.inRow {
			flags++
		}
		for b, missed := range st.missed {
			if missed {
				flags += 1 << (8 + b)
			}
		}
		v := []int64{st.at - k.w.truth, st.mark - k.w.clock, int64(st.cost), int64(len(st.budgets)), int64(st.budgets[0]), flags}
		for n, node := range k.w.nodes {
			if node.name == st.node {
				v = append(v, int64(n)+1)
			}
		}
		return v
	}
	slices.SortFunc(k.order, func(a, b int) int { return slices.Compare(line(a), line(b)) })
	k.num(int64(len(k.order)), max(k.w.latest-k.w.truth, -2*k.longest()))
	for _, i := range k.order {
		k.num(line(i)...)
	}
}

// set writes who is in it. Where nothing is ever lost all is known.
func (k *modelWriter) set(s modelStarts) {
	if k.w.lost == 0 && k.w.left.flushes+k.w.left.stale == 0 {
		return
	}
	var v modelStarts
	for place, i := range k.order {
		for b := range k.limits {
			if s.has(i, b) {
				v = v.with(place, []int{b})
			}
		}
	}
	k.num(int64(v))
}

// start writes which one it is.
func (k *modelWriter) start(i int) { k.num(int64(slices.Index(k.order, i))) }

// from writes a time as that from now; not all that matters of one long ago.
func (k *modelWriter) from(t time.Time) {
	d := int64(1)
	if !t.IsZero() {
		d = max(wire.Micros(t.Sub(k.now)), -3*k.longest())
	}
	k.num(d)
}

// keys writes the rows, then the records of nodes that are still there.
func (k *modelWriter) keys(all map[string]modelKey) {
	for b := range k.limits {
		v, ok := all[k.key(b)]
		if !ok {
			k.num(-1)
			continue
		}
		k.num(v.expires - k.w.clock)
		k.row(v.value)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for i, n := range k.w.nodes {
			v := wire.Frame(all[name].value)
			if k.recordKeyOf(n.name) != name || v.Size() < 5 {
				continue
			}
			k.num(int64(i), v.At(3)-n.calls)
			k.set(all[name].know)
			if n.now != nil && v.At(3) == n.now.number {
				k.num(v.At(1) - k.w.clock)
				k.num(v.At(4))
				k.answer(v.From(5), n.now.merged)
			}
		}
	}
}

func (k *modelWriter) recordKeyOf(name string) string {
	k.queues.Names.Node = name
	return k.queues.Names.Record(modelGroup)
}

// row writes a row.
func (k *modelWriter) row(raw string) {
	r, err := modelReadRow(raw)
	if err != nil {
		k.text(raw)
		return
	}
	for i, v := range r.head {
		t := int64(v)
		switch {
		case i == modelHeadAt, i >= modelHeadOld && i <= modelHeadFirst+2:
		case i == modelHeadSeen && !k.clockMatters():
		case i == modelHeadLost && k.limits[0].Kind() != store.KindTokenBucket:
			k.num(max(t-k.w.clock, -k.longest()-1))
		case i == modelHeadFrozen:
			k.num(max(t-k.w.clock, -4*k.longest()))
		case i == modelHeadOpens:
			k.num(max(t-k.w.clock, 0))
		case i == modelHeadPaused:
			k.num(max(t-k.w.clock, -4*k.longest()))
		case i >= modelHeadBirths && i < modelHeadBirths+4 && i%2 == 1:
			k.birth(t)
		case i <= modelHeadLost, i == modelHeadTill, i == modelHeadExpires:
			k.num(t - k.w.clock)
		default:
			k.num(t)
		}
	}
	for i := range r.earlier.Size() / 2 {
		k.birth(r.earlier.At(2 * i))
		k.num(r.earlier.At(2*i + 1))
	}
	for _, e := range r.entries {
		k.num(e.first-k.w.clock, e.last-k.w.clock, e.n)
	}
}

// How many numbers a reply tells of an operation, of a row, and of its earlier generations.
const (
	perRun     = 5
	perRow     = 5
	perEarlier = 5 // and two for each that has a name besides
	hasEarlier = 1
)

// told calls do with the state, the start, the charge that held it and the end of its pause of each op
// that a reply speaks of, and returns what follows.
func told(v wire.Frame, runs []mergedOps, do func(op int, state, start, held, paused int64)) wire.Frame {
	if v.Size() >= 2 && v.At(0) == wire.AllNow {
		for _, r := range runs {
			for i := r.from; i < r.to; i++ {
				do(i, int64(wire.Booked), v.At(1), 0, 0)
			}
		}
		return v.From(2)
	}
	for _, r := range runs {
		for i := r.from; i < r.to && v.Size() >= perRun; v = v.From(perRun) {
			for range max(1, v.At(0)) {
				do(i, v.At(1), v.At(2), v.At(3), v.At(4))
				i++
			}
		}
	}
	return v
}

// answer writes what a record says.
func (k *modelWriter) answer(v wire.Frame, runs []mergedOps) {
	v = told(v, runs, func(_ int, state, start, held, paused int64) {
		k.num(state, start-k.w.clock, held, paused-k.w.clock)
	})
	for v.Size() >= perRow {
		k.birth(v.At(0))
		more := v.At(4)
		k.num(v.At(1), v.At(2), v.At(3)-k.w.clock, more)
		v = v.From(perRow)
		if more != hasEarlier {
			continue // no caller waits in a line
		}
		named := int(v.At(4))
		k.birth(v.At(0))
		k.num(v.At(1), v.At(2), v.At(3), v.At(4))
		v = v.From(perEarlier)
		for i := range named {
			k.birth(v.At(2 * i))
			k.num(v.At(2*i + 1))
		}
		v = v.From(2 * named)
	}
}

// node writes what a node remembers, and what it does.
func (k *modelWriter) node(n *modelNode) {
	k.num(int64(n.next))
	for b := range k.limits {
		r, ok := n.memory[k.key(b)]
		if !ok {
			k.num(-2)
			continue
		}
		for _, g := range r.Generations {
			k.birth(g.ID)
			k.num(g.Count)
		}
		k.num(r.Older.Count, r.Older.Mark)
		k.num(int64(len(r.Starts)), r.Last.Number-n.calls)
		if k.clockMatters() {
			k.num(r.Last.ServerTime - k.w.clock)
			k.from(r.Last.Sent)
			k.from(r.Last.By)
		}
		for _, s := range r.Starts {
			k.from(s.By)
			k.num(s.Count)
		}
		if until, ok := n.closed[k.key(b)]; ok {
			k.from(until)
		}
	}
	for _, j := range n.jobs {
		k.num(int64(j.wish), int64(j.state))
		k.start(j.start)
	}
	k.set(n.known)
	if n.queue != nil {
		k.num(-3)
		k.callers(n, n.queue.ops)
		k.batch(n, n.queue.lost)
		k.batch(n, n.now)
	}
	if n.reply != nil && n.now != nil {
		k.from(n.reply.sent)
		k.set(n.reply.know)
		v := wire.Frame(n.reply.text)
		k.num(v.At(0), v.At(1)-k.w.clock, v.At(2)-k.w.clock, v.At(4))
		k.answer(v.From(5), n.now.merged)
	}
}

// clockMatters reports whether the clock was set, or may be.
func (k *modelWriter) clockMatters() bool { return k.w.backed > 0 || k.w.left.backs > 0 }

func (k *modelWriter) callers(n *modelNode, all []*op) {
	k.num(int64(len(all)))
	for _, c := range all {
		which := int64(-1)
		for i, j := range n.jobs {
			if j.c == c {
				which = int64(i)
			}
		}
		mark := c.Start - c.Arrival
		if mark > 0 {
			mark -= k.w.clock
		}
		flags := int64(0)
		if c.left {
			flags = 1
		}
		if c.noMerge {
			flags += 2
		}
		if c.Informed {
			flags += 4
		}
		k.num(which, mark, int64(c.Kind), c.MaxWait, flags)
		k.from(c.joined)
	}
}

func (k *modelWriter) batch(n *modelNode, b *batch) {
	if b == nil {
		k.num(-4)
		return
	}
	k.num(b.number - n.calls)
	k.from(b.sent)
	k.callers(n, b.ops)
	if b == n.now {
		k.from(b.copied)
	}
}

// plan writes what a late call is for.
func (k *modelWriter) plan(p modelPlan) {
	for i, n := range k.w.nodes {
		if n.name == p.name {
			k.num(int64(i), p.number-n.calls)
		}
	}
	for _, q := range p.asks {
		k.num(int64(q.job), int64(q.turn), q.mark-k.w.clock)
	}
	k.set(p.know)
}

// args writes what a late call tells: as it was when it was sent.
func (k *modelWriter) args(args []any) {
	count := args[2].(int)
	for _, a := range args[5+count:] {
		switch a := a.(type) {
		case string:
			k.text(a)
		case int64:
			k.num(a)
		}
	}
	blob := wire.Frame(args[4+count].([]byte))
	k.num(blob.At(3))
	rest := blob.From(5) // without its number and its seed
	for range count - 1 {
		for i := range 2 {
			k.birth(rest.At(4 + 2*i))
			k.num(rest.At(5 + 2*i))
		}
		k.num(rest.At(8), rest.At(9), rest.At(10))
		more := int(rest.At(10))
		for i := range more {
			k.birth(rest.At(11 + 2*i))
			k.num(rest.At(12 + 2*i))
		}
		rest = rest.From(11 + 2*more)
		size := int(rest.At(0))
		k.text(string(rest.From(1)[:16*size]))
		rest = rest.From(2 + 2*size)
	}
	k.num(int64(rest.Size()))
}
