package redisstore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// vigils are all of a store, and the news that may concern those to come.
type vigils struct {
	worth  time.Duration // earWorth, unless a test wants to ask always
	mu     sync.Mutex
	all    map[string]map[*vigil]struct{} // by the keys of their budgets
	recent []rumour                       // the oldest first
	from   time.Time                      // what came before then is forgotten
}

// A rumour is a pause that was heard of.
type rumour struct {
	key string
	closing
	at time.Time
}

// The news of a pause can come before the answer to the booking that it closes: as
// long before as answers take, and not in greater numbers than these.
const (
	recentTime = time.Minute
	recentMost = 1 << 12
)

// add begins a vigil. If something was heard of its budgets before the answer to
// its booking came, or may have been and is forgotten, the vigil must ask: nobody
// knows which of the two was later.
func (vs *vigils) add(v *vigil) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, key := range v.keys {
		if vs.all[key] == nil {
			vs.all[key] = make(map[*vigil]struct{})
		}
		vs.all[key][v] = struct{}{}
	}
	heard := v.since.Before(vs.from)
	for i := len(vs.recent) - 1; i >= 0 && !vs.recent[i].at.Before(v.since); i-- {
		if r := &vs.recent[i]; slices.Contains(v.keys, r.key) {
			heard = true
			if r.end == 0 && r.at.After(v.since) {
				v.lifted.Store(true)
			}
		}
	}
	if heard {
		v.since = time.Time{}
		v.tell()
	}
}

// since returns when all pauses are known from that concern a vigil.
func (vs *vigils) since(v *vigil) time.Time {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return v.since
}

// answered passes on what was asked at that time of some budgets.
func (vs *vigils) answered(found map[string]closing, asked time.Time) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for key, c := range found {
		for v := range vs.all[key] {
			v.hear(c)
			if !slices.ContainsFunc(v.keys, func(key string) bool { _, ok := found[key]; return !ok }) {
				v.since = asked
			}
			if v.useless() {
				v.tell()
			}
		}
	}
}

// remove ends a vigil.
func (vs *vigils) remove(v *vigil) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for _, key := range v.keys {
		if delete(vs.all[key], v); len(vs.all[key]) == 0 {
			delete(vs.all, key)
		}
	}
}

// heard passes news of a budget on to all who watch it, the earliest start first,
// so that they book anew in that order.
func (vs *vigils) heard(key string, c closing) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	now := time.Now()
	for len(vs.recent) > 0 && (now.Sub(vs.recent[0].at) > recentTime || len(vs.recent) >= recentMost) {
		vs.from, vs.recent = vs.recent[0].at, vs.recent[1:]
	}
	vs.recent = append(vs.recent, rumour{key, c, now})
	all := make([]*vigil, 0, len(vs.all[key]))
	for v := range vs.all[key] {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *vigil) int { return cmp.Compare(a.mark, b.mark) })
	for _, v := range all {
		if c.end == 0 {
			v.lifted.Store(true)
		}
		if v.hear(c); v.useless() {
			v.tell()
		}
	}
}

// hearPause takes a message of lua/pause.lua, lua/reconcile.lua, or sayLost, apart.
func (s *Store) hearPause(text string) {
	if times, ok := strings.CutPrefix(text, anewMark); ok {
		s.hearAnew(times)
		return
	}
	if come, ok := strings.CutPrefix(text, comeMark); ok {
		s.hearCome(come)
		return
	}
	if key, ok := strings.CutPrefix(text, lostMark); ok {
		s.hearLost(key)
		return
	}
	end, rest, _ := strings.Cut(text, " ")
	left, key, _ := strings.Cut(rest, " ")
	e, err1 := strconv.ParseInt(end, 10, 64)
	l, err2 := strconv.ParseInt(left, 10, 64)
	if err1 == nil && err2 == nil {
		s.heardPause(key, closing{e, time.Duration(l) * time.Microsecond})
	}
}

// heardPause remembers a pause and wakes whose start it closes.
func (s *Store) heardPause(key string, c closing) {
	if c.end == 0 {
		s.pauses.Forget(key)
		s.shut.Forget(key)
		s.queues.ask(s, key)
	} else {
		now := time.Now()
		until := now.Add(min(c.left, throttle.MaxPenalty))
		s.pauses.Note(key, until, now)
		s.queues.closed(s, key, until)
	}
	s.vigils.heard(key, c)
}
