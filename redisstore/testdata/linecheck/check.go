// Package linecheck says which answers of lua/book.lua about lines are allowed, given all
// calls before: the transition relation of docs/internals/model.md. It knows nothing of rows and of how room
// is looked for. So the cut may move over as much as a limit could have room for, at any time, and
// what was offered may lapse at any time when it has stood for long enough. All else follows from what
// was asked: which tickets are given, what waits, and who is told to wait.
package linecheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Lines are the lines of a server, by the keys of their rows.
type Lines map[string]*Line

// Clone returns lines that may be checked on by themselves.
func (ls Lines) Clone() Lines {
	to := make(Lines, len(ls))
	for key, l := range ls {
		copied := *l
		copied.states = nil
		for _, s := range l.states {
			copied.states = append(copied.states, s.clone())
		}
		to[key] = &copied
	}
	return to
}

// Check applies a call to the lines, and returns an error if its answer is not allowed. Calls come in the order in
// which they were done.
func (ls Lines) Check(c *Call) error {
	for key := range c.Limits {
		l := ls[key]
		if l == nil {
			l = &Line{states: []state{newState()}}
			ls[key] = l
		}
		if err := l.check(c, key); err != nil {
			return fmt.Errorf("%s at %d: %w", key, c.Now, err)
		}
	}
	return nil
}

// check applies a call to one line, and returns an error if its answer is not allowed.
func (l *Line) check(c *Call, key string) error {
	told := c.Lines[key]
	id := l.idAfter(c, key, told)

	// A new line is allowed where nobody waits, or where Redis may have forgotten the old line.
	if id != l.id {
		if l.hasWaiters() && c.Now-l.heard < kept {
			return fmt.Errorf("line %d has waiters, and now there is line %d", l.id, id)
		}
		l.id, l.states = id, []state{newState()}
	}
	l.heard = c.Now
	for i := range c.Ops {
		l.horizon = max(l.horizon, c.Ops[i].Horizon)
	}

	// Keep each state in which the line may be after the call, once.
	var after []state
	var why error
	for _, s := range l.states {
		ends, err := l.outcomes(s, c, key)
		if err != nil {
			why = err
			continue
		}
		for _, e := range ends {
			if err := l.agrees(&e, told, c, key); err != nil {
				why = err
				continue
			}
			if !slices.ContainsFunc(after, func(o state) bool { return fmt.Sprint(o) == fmt.Sprint(e) }) {
				after = append(after, e)
			}
		}
	}
	if len(after) == 0 {
		return why
	}

	l.states = after
	if told == nil {
		l.id, l.states = 0, []state{newState()} // a line where nobody waits is dropped
	}
	return nil
}

// hasWaiters reports whether somebody may wait in the line.
func (l *Line) hasWaiters() bool {
	return l.id != 0 && slices.ContainsFunc(l.states, func(s state) bool { return s.waiting(classes) > 0 })
}

// idAfter returns the ID of the line after a call: from the reply or, if the reply names no line, from the tickets
// that it gave, or else the ID before.
func (l *Line) idAfter(c *Call, key string, told *wire.Line) int64 {
	if told != nil {
		return told.ID
	}
	for i := range c.Ops {
		for _, o := range c.Ops[i].Outcomes {
			for _, t := range o.Tickets {
				if c.Ops[i].Charges[t.Charge].Key == key {
					return t.Line
				}
			}
		}
	}
	return l.id
}

// outcomes applies the operations of a call to a state, and returns the states that are possible after it.
func (l *Line) outcomes(s state, c *Call, key string) (ends []state, err error) {
	s = s.clone()
	for k := range s.classes {
		s.classes[k].lapsing, s.classes[k].counted = false, 0
	}
	s.called = false

	may := []state{s}
	for i := range c.Ops {
		op := &c.Ops[i]
		at := slices.IndexFunc(op.Charges, func(ch Charge) bool { return ch.Key == key })
		if at < 0 {
			continue
		}

		// The first caller that may stand in the line has it offer room: before that, offers may lapse.
		var next []state
		for _, s := range may {
			begins := []state{s}
			if op.Kind == wire.Reserve && op.Horizon > 0 && !s.called {
				s.called = true
				begins = lapses([]state{s}, c.Now)
			}
			for _, b := range begins {
				e := b.clone()
				if err = l.operate(&e, op, at, c.Now); err == nil {
					next = append(next, e)
				}
			}
		}
		may = next
		if len(may) == 0 {
			return nil, err
		}
	}
	return lapses(may, c.Now), nil
}

// lapses returns the states that are possible now, with each offer that may have lapsed kept or lapsed.
func lapses(all []state, now int64) []state {
	for k := range classes {
		for _, s := range all {
			if c := &s.classes[k]; c.mayLapse(now) {
				e := s.clone()
				e.classes[k].lapse(now)
				all = append(all, e)
			}
		}
	}
	return all
}

// agrees returns an error if a reply does not fit a state. It sets the state's cuts to the cuts of the reply.
func (l *Line) agrees(s *state, told *wire.Line, c *Call, key string) error {
	if told == nil {
		if n := s.waiting(classes); n > 0 {
			return fmt.Errorf("%d wait, and there is no line", n)
		}
		return nil
	}

	for k := range s.classes {
		q, cut := &s.classes[k], told.Cuts[k]
		switch {
		case q.joined != told.Joined[k]:
			return fmt.Errorf("class %d: the next ticket is %d, and %d is told", k+1, q.joined, told.Joined[k])
		case cut < q.cut:
			return fmt.Errorf("class %d: the cut goes back from %d to %d", k+1, q.cut, cut)
		case cut > q.joined:
			return fmt.Errorf("class %d: the cut is %d, and the next ticket %d", k+1, cut, q.joined)
		case q.notOffered() == 0:
			q.cut = cut // nobody is left: a script that has to guess which tickets are gone may not know
		case cut > q.cut:
			most := c.Limits[key].most(l.horizon)
			if q.lapsing {
				most = max(most, q.step)
			}

			// Waiters that came in this call and wait again are offers beside the room.
			before := q.offered()
			q.cut, q.cutSince = cut, c.Now
			if n := q.offered(); n > max(most, before)+q.counted {
				return fmt.Errorf("class %d: %d are offered, and there is room for %d", k+1, n, most)
			}
		}
	}

	if n := s.waiting(classes); n != told.Waiting {
		return fmt.Errorf("%d wait, and %d are told", n, told.Waiting)
	}
	return nil
}

// most returns an upper bound on the room within a horizon. Of other kinds none is known.
func (l Limit) most(horizon int64) int64 {
	switch l.Kind {
	case store.KindSlidingWindow:
		return l.N * (1 + horizon/l.Span)
	case store.KindFixedWindow:
		return l.N * (2 + horizon/max(1, l.Span))
	case store.KindLeakyBucket:
		return 1 + horizon/max(1, l.Span)
	}
	return 1 << 53
}

// String tells all that is known: the same for lines of which the same answers are allowed.
func (ls Lines) String() string {
	var s strings.Builder
	for _, key := range slices.Sorted(maps.Keys(ls)) {
		l := ls[key]
		fmt.Fprint(&s, key, l.id, l.heard, l.horizon, l.states)
	}
	return s.String()
}
