package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"
)

// bridges are those of a store, by group; with [Wait] there are none. The lock
// guards all that is in them.
type bridges struct {
	mode Outage
	mu   sync.Mutex
	all  map[string]*bridge
}

// A bridge carries the callers of one group over an outage; docs/outages.md says
// how, and why no limit is passed. It exists while the group is in use and a
// little longer, and has no goroutine but for the calls that it makes.
type bridge struct {
	store   *Store
	group   string
	users   int           // who books, or watches over a start
	used    time.Time     // when there was one last
	change  chan struct{} // closed, and made anew, when it is worth looking again
	timer   *time.Timer   // calls tick
	calls   int           // how many are on their way
	leaving bool          // and the last of them says goodbye
	over    bool          // forgotten: there may be another one
	beats   beats

	up     context.Context // ends, with errAlone, when Redis is given up
	sink   context.CancelCauseFunc
	island *island   // where callers are meanwhile
	steady time.Time // since when Redis answers again
	coming bool      // on the way back
}

const (
	linger     = 10 * time.Second // for how long a group counts as used when nobody uses it
	callsMost  = 4                // a call that hangs must not keep others from finding Redis back
	aloneAfter = 5 * time.Second  // Share: after the last beat
	openAfter  = 2 * time.Second  // Open: after the last answer
	steadyFor  = 500 * time.Millisecond
)

// errAlone ends what waits for a Redis that is given up.
var errAlone = errors.New("redisstore: Redis is away")

// board says that somebody uses the group until leave, and returns its bridge;
// nil with [Wait].
func (s *Store) board(group string) *bridge {
	bs := &s.bridges
	if bs.mode == Wait {
		return nil
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	br := bs.all[group]
	if br == nil {
		br = &bridge{store: s, group: group, change: make(chan struct{}), beats: beats{began: time.Now()}}
		br.reach()
		bs.all[group] = br
		br.timer = time.AfterFunc(0, br.tick)
	}
	br.users++
	return br
}

// leave ends what board began.
func (br *bridge) leave() {
	if br == nil {
		return
	}
	br.store.bridges.mu.Lock()
	defer br.store.bridges.mu.Unlock()
	br.users--
	br.used = time.Now()
}

// reach notes that Redis is there. The bridges are locked, as in all that follows
// but tick, call and comeBack.
func (br *bridge) reach() {
	br.island, br.steady = nil, time.Time{}
	br.up, br.sink = context.WithCancelCause(context.Background())
}

// signal wakes all who wait for a change.
func (br *bridge) signal() {
	close(br.change)
	br.change = make(chan struct{})
}

// tick looks after the bridge, about once a second, or more often while Redis is
// away.
func (br *bridge) tick() {
	bs := &br.store.bridges
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if br.leaving || br.over {
		return
	}
	now, again := time.Now(), beatEvery
	if br.idle(now) {
		br.goodbye()
		return
	}
	br.beats.judge(now)
	if br.island == nil && br.lost(now) {
		br.island = newIsland(br.store, br.beats.divisor.get(), br.beats.said.Add(aloneAfter))
		br.sink(errAlone)
		br.signal()
		br.store.queues.callAll(br.store, func(q *queue) bool { return q.group == br.group })
	}
	if br.beats.unsure || br.island != nil {
		again = lookEvery
	}
	if br.calls < callsMost && !br.coming {
		what := int64(sayBeat)
		if br.beats.unsure || br.island != nil {
			what = sayLook
		}
		br.send(what)
	}
	br.timer.Reset(again)
}

// lost reports whether Redis is to be given up, and this node is sure of its share.
func (br *bridge) lost(now time.Time) bool {
	b := &br.beats
	if br.store.bridges.mode == Open {
		return b.unsure && now.Sub(b.answered) > openAfter && now.Sub(b.began) > openAfter
	}
	return b.unsure && b.known() && now.Sub(b.said) > aloneAfter
}

// idle reports whether nobody has used the group for a while.
func (br *bridge) idle(now time.Time) bool {
	if br.stands() {
		br.used = now
	}
	if br.users > 0 || br.coming {
		return false
	}
	after := linger
	if br.island != nil {
		after = max(after, br.island.span())
	}
	return now.Sub(br.used) > after
}

// stands reports whether somebody of the group waits in line.
func (br *bridge) stands() bool {
	qs := &br.store.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.all {
		if q.group == br.group {
			return true
		}
	}
	return false
}

// goodbye ends the bridge. If somebody comes meanwhile it begins anew.
func (br *bridge) goodbye() {
	if br.beats.heard.IsZero() || br.island != nil {
		br.forget()
		return
	}
	br.leaving = true
	br.send(sayBye)
}

func (br *bridge) forget() {
	br.over = true
	delete(br.store.bridges.all, br.group)
}

// send makes a call.
func (br *bridge) send(what int64) {
	br.calls++
	go br.call(br.beats.say(what, time.Now()))
}

func (br *bridge) call(w saying) {
	p, err := br.store.say(br.group, w)
	bs := &br.store.bridges
	bs.mu.Lock()
	defer bs.mu.Unlock()
	br.calls--
	now := time.Now()
	switch {
	case br.over:
	case w.what == sayBye:
		br.left(now)
	case err == nil && now.Sub(p.sent) <= tooLong:
		br.heard(w.what, p, now)
	default:
		br.beats.failed(err)
		br.steady = time.Time{}
		br.timer.Reset(lookEvery)
	}
}

// left ends the bridge whose goodbye was said, unless it is used again.
func (br *bridge) left(now time.Time) {
	if br.users == 0 {
		br.forget()
		return
	}
	br.leaving, br.beats = false, beats{began: now}
	br.timer.Reset(0)
}

// heard takes in what Redis answered.
func (br *bridge) heard(what int64, p presence, now time.Time) {
	br.beats.heardOf(what, p, now)
	switch {
	case br.island == nil:
		if what == sayLook || !p.counts {
			br.timer.Reset(0) // and now a beat
		}
		br.signal()
	case br.steady.IsZero():
		br.steady = now
	case now.Sub(br.steady) > steadyFor && !br.coming:
		br.coming = true
		go br.comeBack()
	}
}

// comeBack ends the island: see docs/outages.md.
func (br *bridge) comeBack() {
	bs, isl := &br.store.bridges, br.island
	told := isl.close() && br.store.tellStarts(isl)
	bs.mu.Lock()
	beat := br.beats.say(sayBeat, time.Now())
	bs.mu.Unlock()
	var p presence
	err := errAlone
	if told {
		p, err = br.store.say(br.group, beat)
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	now := time.Now()
	br.coming = false
	if err == nil && p.counts && now.Sub(p.sent) <= tooLong {
		br.reach()
		br.beats.heardOf(sayBeat, p, now)
	} else {
		// The beat may have been heard, and then nobody left room for a while.
		isl.open(br.beats.said.Add(aloneAfter))
		br.steady = time.Time{}
	}
	br.signal()
}
