package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A modelRow is one as lua/row.lua keeps it.
type modelRow struct {
	head    [modelHead]float64
	earlier wire.Frame // generations before the last two
	entries []modelEntry
}

type modelEntry struct{ first, last, n int64 }

// modelHead is how many numbers a row begins with: TestHeadNumbers of redisstore has the same.
const modelHead = 40

// The fields of a head that the model looks at.
const (
	modelHeadSeen, modelHeadLost, modelHeadSpan, modelHeadTill, modelHeadPaused, modelHeadFrozen, modelHeadLevel                 = 0, 1, 2, 4, 5, 6, 7
	modelHeadBirths, modelHeadSize, modelHeadAt, modelHeadOld, modelHeadBefore, modelHeadFirst, modelHeadExpires, modelHeadOpens = 9, 17, 18, 19, 20, 21, 24, 25
	modelHeadNamed, modelHeadLined                                                                                               = 13, 30
)

// modelReadRow takes a stored row apart.
func modelReadRow(raw string) (r modelRow, err error) {
	const size = 8 * modelHead
	if len(raw) < size {
		return r, fmt.Errorf("a row of %d bytes", len(raw))
	}
	for i := range r.head {
		r.head[i] = math.Float64frombits(binary.LittleEndian.Uint64([]byte(raw[8*i:])))
	}
	named := int(r.head[modelHeadNamed])
	if named%16 != 0 || len(raw) < size+named {
		return r, fmt.Errorf("a row of %d bytes with %d of names", len(raw), named)
	}
	r.earlier = wire.Frame(raw[size : size+named])
	count := int(r.head[modelHeadSize])
	if count == 0 {
		return r, nil
	}
	body := raw[size+int(r.head[modelHeadNamed]+r.head[modelHeadLined]+r.head[modelHeadAt]):]
	prev := int64(0)
	for i := range 3 * (count - 1) {
		var v int64
		if v, body, err = modelUnpack(body); err != nil {
			return r, err
		}
		switch i % 3 {
		case 0:
			if i == 0 {
				v = 0 // counted from the entry's own end, which the head tells
			}
			r.entries = append(r.entries, modelEntry{first: prev + v})
		case 1:
			e := &r.entries[len(r.entries)-1]
			if i == 1 {
				e.first = int64(r.head[modelHeadOld]) - v
			}
			e.last = e.first + v
			prev = e.last
		case 2:
			r.entries[len(r.entries)-1].n = v
		}
	}
	last := modelEntry{int64(r.head[modelHeadFirst]), int64(r.head[modelHeadFirst+1]), int64(r.head[modelHeadFirst+2])}
	r.entries = append(r.entries, last)
	return r, nil
}

// modelUnpack reads one number of MessagePack.
func modelUnpack(s string) (v int64, rest string, err error) {
	if s == "" {
		return 0, "", errors.New("a row ends too early")
	}
	c := s[0]
	if c < 0x80 {
		return int64(c), s[1:], nil
	}
	size := map[byte]int{0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8}[c]
	if size == 0 || len(s) <= size {
		return 0, "", fmt.Errorf("a row holds %x", s[:1])
	}
	var u uint64
	for _, b := range []byte(s[1 : 1+size]) {
		u = u<<8 | uint64(b)
	}
	if c == 0xcb {
		return int64(math.Float64frombits(u)), s[1+size:], nil
	}
	return int64(u), s[1+size:], nil
}

// modelWindow is the length of all windows. Time passes in parts of it, or until
// all that is now is over.
const modelWindow = 10 * time.Second

// The limits that are explored.
var (
	modelOne    = store.SlidingWindow(1, modelWindow)
	modelTwo    = store.SlidingWindow(2, modelWindow)
	modelThree  = store.SlidingWindow(3, modelWindow)
	modelFixed  = store.FixedWindow(2, modelWindow)
	modelBucket = store.TokenBucket(2, modelWindow, 2)
	modelLeaky  = store.LeakyBucket(2, modelWindow)
)

// What nodes want.
var (
	modelPlainWish   = modelWish{budgets: []int{0}, cost: 1, maxWait: -1}
	modelCostlyWish  = modelWish{budgets: []int{0}, cost: 2, maxWait: -1}
	modelHastyWish   = modelWish{budgets: []int{0}, cost: 1}
	modelPatientWish = modelWish{budgets: []int{0}, cost: 1, maxWait: 8 * time.Second}
	modelBothWish    = modelWish{budgets: []int{0, 1}, cost: 1, maxWait: -1}
	modelOtherWish   = modelWish{budgets: []int{1}, cost: 1, maxWait: -1}
)

// A modelPlans is what each node wants.
type modelPlans struct {
	name   string
	wishes [][]modelWish
}

// A modelTrouble is a kind of what may go wrong.
type modelTrouble struct {
	name string
	most modelChances
}

var (
	modelReplies = modelTrouble{"replies", modelChances{lost: 3, held: 2, slow: 1, leaves: 1}}
	modelLosses  = modelTrouble{"losses", modelChances{lost: 1, crashes: 1, flushes: 2, stale: 1}}
	modelPlaces  = modelTrouble{"places", modelChances{lost: 1, leaves: 1, cancels: 2, pauses: 1, flushes: 1}}
	modelClocks  = modelTrouble{"clocks", modelChances{lost: 1, cancels: 1, backs: 2}}
)

// modelTroubled returns a scope.
func modelTroubled(l []store.Limit, p modelPlans, k modelTrouble, ticks, faults int) modelScope {
	s := modelScope{
		name:   strings.ReplaceAll(fmt.Sprint(k.name, " ", ticks, " ", faults, " ", p.name, " ", l), "/", " per "),
		limits: l, plans: p.wishes, most: k.most,
		ticks: []time.Duration{modelWindow * 2 / 5, modelWindow + time.Microsecond},
	}
	if l[0].Kind() == store.KindFixedWindow {
		s.ticks[1] = modelWindow
	}
	s.most.ticks, s.most.faults = ticks, faults
	return s
}

// modelScopes returns what is explored.
func modelScopes(large bool) (all []modelScope) {
	pairs := modelPlans{"pairs", [][]modelWish{{modelPlainWish, modelPlainWish}, {modelHastyWish}}}
	costs := modelPlans{"costs", [][]modelWish{{modelCostlyWish, modelPlainWish}, {modelPatientWish}}}
	three := modelPlans{"three", [][]modelWish{{modelPlainWish}, {modelPlainWish}, {modelPlainWish}}}
	both := modelPlans{"both", [][]modelWish{{modelBothWish, modelOtherWish}, {modelBothWish}}}
	for _, k := range []modelTrouble{modelReplies, modelLosses, modelPlaces, modelClocks} {
		add := func(plans modelPlans, limits ...store.Limit) {
			if limits[0].Kind() == store.KindFixedWindow && k.most.backs > 0 {
				return // what a window is nobody can say then
			}
			if !large {
				all = append(all, modelTroubled(limits, plans, k, 1, 1))
				return
			}
			more := modelPlans{plans.name + "+", slices.Clone(plans.wishes)}
			more.wishes[1] = append(slices.Clone(plans.wishes[1]), modelPlainWish)
			all = append(all, modelTroubled(limits, plans, k, 1, 2), modelTroubled(limits, more, k, 2, 1), modelTroubled(limits, more, k, 2, 2))
		}
		add(pairs, modelTwo)
		add(three, modelTwo)
		add(costs, modelFixed)
		add(costs, modelTwo)
		add(both, modelTwo, modelOne)
		if large {
			add(pairs, modelOne)
			add(costs, modelThree)
			add(costs, modelBucket)
			add(pairs, modelLeaky)
		}
	}
	// What needs two faults, also in the small form: a replica that has counted on to
	// what a node knows, one who leaves a call, a place given back after a step, and a
	// call that is answered again after one.
	lag := modelTrouble{"lag", modelChances{stale: 1}}
	left := modelTrouble{"left", modelChances{lost: 1, slow: 1, leaves: 1}}
	step := modelTrouble{"step", modelChances{cancels: 1, backs: 1}}
	again := modelTrouble{"again", modelChances{lost: 1, backs: 1, flushes: 1}}
	alone := modelPlans{"alone", [][]modelWish{{modelPlainWish, modelPlainWish, modelPlainWish}, {modelPlainWish}}}
	return append(all,
		modelTroubled([]store.Limit{modelThree}, alone, lag, 1, 1),
		modelTroubled([]store.Limit{modelBucket}, pairs, left, 1, 2),
		modelTroubled([]store.Limit{modelOne}, pairs, step, 1, 2),
		modelTroubled([]store.Limit{modelOne}, pairs, again, 1, 3),
		modelTroubled([]store.Limit{modelLeaky}, pairs, left, 1, 2),
	)
}
