package storetest

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// crowd lets callers book at the same time, and compares when those start that are not refused.
func (p *play) crowd(m *move) {
	p.Helper()
	callers := max(m.times, len(m.want.answers))
	grants, errs := make([]store.Grant, callers), make([]error, callers)

	var crowd sync.WaitGroup
	for i := range callers {
		k := p.booking(m)
		switch k.Charges = slices.Clone(k.Charges); {
		case m.words["turning"] && i%2 == 1:
			slices.Reverse(k.Charges)
		case m.words["choosing"]:
			k.Charges = []store.Charge{k.Charges[0], k.Charges[1+i%(len(k.Charges)-1)]}
		}

		crowd.Go(func() {
			grants[i], errs[i] = p.store.Book(p.Context(), &k)
			if m.words["fleeting"] {
				p.store.Cancel(&k, grants[i])
			}
		})
	}

	crowd.Wait()
	var starts []time.Duration
	for i, g := range grants {
		switch {
		case errs[i] != nil:
			p.fatalf("%v", errs[i])
		case g.OK:
			starts = append(starts, p.now()+g.Wait)
		}
	}

	slices.Sort(starts)
	if len(starts) != len(m.want.answers) && !m.words["fleeting"] {
		p.errorf("at %v: %d of %d callers have a start, want %d", p.now(), len(starts), callers, len(m.want.answers))
		return
	}

	for i, want := range m.want.answers {
		if at := want.low.since(p.now()); starts[i] != at {
			p.errorf("start %d of %d is at %v, want %v", i, len(starts), starts[i], at)
			return
		}
	}
}

// ride lets callers come at the same time for room in flight. Each waits in line until it is
// called, and gives up its room at once. There are never too many, and none is forgotten.
func (p *play) ride(m *move) {
	p.Helper()
	var crowd sync.WaitGroup

	var running, most, served atomic.Int64
	for range m.times {
		crowd.Go(func() {
			k, g := p.book(p.booking(m))
			for g.Ready != nil {
				if !p.called(ticket{k, g}) {
					return
				}
				k.Instead = g.Handle
				k, g = p.book(k)
			}

			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}

			runtime.Gosched()
			running.Add(-1)
			served.Add(1)
			p.store.Release(&k, g)
		})
	}

	crowd.Wait()
	if limit := m.charges[0].Limit.N(); most.Load() > int64(limit) || served.Load() != int64(m.times) {
		p.errorf("%d of %d callers were served, up to %d at a time; want all, up to %d", served.Load(), m.times, most.Load(), limit)
	}
}
