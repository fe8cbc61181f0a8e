package node

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

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
		if v = v.From(perRow); more != hasEarlier {
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
