package storetest

import (
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A shareTold is a store's report on the shares of a budget at one moment, and the true report, by ID.
type shareTold struct {
	at            time.Duration
	told          map[uint64]store.ShareStatus
	waits, booked map[uint64]int // the costs of the callers in line, and of the callers that have had their turn
	weights       map[uint64]int
}

// asksAt are the windows after which the store is asked for its report.
var asksAt = []float64{6, 7.3, 9}

// asks asks the store about the shares of the budget.
func (r *shareRun) asks() {
	r.Helper()
	synctest.Wait()

	st, err := r.store.Status(r.Context(), r.scene.charge(sharer{cost: 1}))
	if err != nil {
		r.fatalf("Status at %v: %v", r.now(), err)
	}

	a := shareTold{r.now(), make(map[uint64]store.ShareStatus), make(map[uint64]int), make(map[uint64]int), make(map[uint64]int)}
	for i, s := range st.Shares {
		if i > 0 && s.ID <= st.Shares[i-1].ID {
			r.fatalf("%s: the shares at %v are not by ID: %v", r.scene.name, a.at, st.Shares)
		}
		a.told[s.ID] = s
	}

	callers := 0
	for i, v := range r.visitors {
		c := &r.callers[i]
		a.weights[c.share.ID] = max(1, c.share.Weight)
		v.mu.Lock()

		switch {
		case v.grant.OK || v.start != never:
			a.booked[c.share.ID] += c.cost
		case !v.over:
			a.waits[c.share.ID] += c.cost
			callers++
		}

		v.mu.Unlock()
	}

	if st.Callers != callers {
		r.errorf("%s: at %v the store tells of %d callers in line, and there are %d", r.scene.name, a.at, st.Callers, callers)
	}

	r.told = append(r.told, a)
}

// areTold: the report says how much waits of each share, and what those shares that wait all the time were served meanwhile.
func (r *shareRun) areTold() {
	r.Helper()
	for i, a := range r.told {
		if len(a.told) == 0 && len(a.waits) == 1 && a.waits[0] > 0 {
			continue // only callers without a share wait
		}

		for id, waits := range a.waits {
			s := a.told[id]
			if s.Waiting != waits || s.Weight != a.weights[id] {
				r.errorf("%s: at %v the store tells %+v of the share %d, of weight %d, of which %d wait", r.scene.name, a.at, s, id, a.weights[id], waits)
			}
			if i == 0 || r.scene.random || !r.isAlways(id) {
				continue
			}

			before := r.told[i-1]
			if got, want := s.Served-before.told[id].Served, a.booked[id]-before.booked[id]; got != want {
				r.errorf("%s: from %v to %v the share %d was served %d, and the store tells %d", r.scene.name, before.at, a.at, id, want, got)
			}
		}

		for id, s := range a.told {
			if a.waits[id] != s.Waiting {
				r.errorf("%s: at %v the store tells %+v, and nobody of that share waits", r.scene.name, a.at, s)
			}
		}
	}
}

// isAlways reports whether callers of a share wait between the times at which the store is asked: they ask for far more than their part.
func (r *shareRun) isAlways(id uint64) bool {
	for i, a := range r.scene.tenants {
		if r.scene.shareID(i) == id {
			return a.load >= 2 && a.from == 0 && a.to == 0 && a.leave == 0
		}
	}
	return false
}
