package storetest

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
)

// verbs are what the moves do; vectors/README.md describes them.
var verbs = map[string]func(*play, *move){
	"at":   (*play).passes,
	"wait": (*play).passes,

	"book":    (*play).books,
	"try":     (*play).books,
	"again":   each((*play).bookAgain),
	"board":   each((*play).boards),
	"cancel":  each((*play).cancel),
	"release": each((*play).release),
	"settle":  each((*play).settles),
	"called":  each((*play).isCalled),
	"waits":   each((*play).isWaiting),

	"pause":  budget((*play).pauses),
	"resume": budget((*play).resumes),
	"refuse": budget((*play).refuse),
	"states": budget((*play).isTold),
	"status": budget((*play).isStatus),
	"shows":  budget((*play).isStatus),

	"watch":   (*play).watches,
	"move":    each((*play).moveOn),
	"stop":    each((*play).stop),
	"good":    each((*play).isGood),
	"bad":     each((*play).isBad),
	"useless": each((*play).isUseless),
	"quiet":   each((*play).isQuiet),
	"deaf":    each((*play).watchDeaf),

	"come":    (*play).come,
	"leave":   each((*play).leave),
	"change":  each((*play).change),
	"return":  each((*play).comeBack),
	"begin":   (*play).isBegun,
	"set":     (*play).isSet,
	"over":    (*play).isOver,
	"order":   (*play).isInOrder,
	"most":    (*play).areAtMost,
	"busy":    budget((*play).isBusy),
	"gapless": (*play).isGapless,
	"near":    (*play).isNear,

	"crowd":  (*play).crowd,
	"ride":   (*play).ride,
	"queue":  (*play).queue,
	"steady": (*play).steady,
}

// each does something for each caller that a move is about.
func each(do func(*play, *move, *caller)) func(*play, *move) {
	return func(p *play, m *move) {
		p.Helper()
		for _, c := range p.of(m) {
			p.enter(c.program)
			do(p, m, c)
		}
		p.calm()
	}
}

// budget does something for each budget that a move is about.
func budget(do func(*play, *move, throttle.Charge)) func(*play, *move) {
	return func(p *play, m *move) {
		p.Helper()
		for _, c := range m.charges {
			do(p, m, c)
		}
		p.calm()
	}
}

// A vector is a check as text: its moves, once for each case.
type vector struct {
	name  string
	cases [][]move
}

// run plays all cases on one store, one after another, each on budgets of its own and from a
// full hour on.
func (v vector) run(b *bench) {
	b.Helper()
	for i, moves := range v.cases {
		if i > 0 {
			b.place = ""
			b.at((b.now() + 2*time.Hour).Truncate(time.Hour))
			b.zero = time.Now()
		}
		p := &play{bench: b, known: make(map[string][]*caller)}
		p.play(moves, i)
	}
}

// play makes the moves of the i-th case.
func (p *play) play(moves []move, i int) {
	p.Helper()
	for j := range moves {
		m := &moves[j]
		p.enter(m.program)
		if p.place = m.place; i > 0 {
			p.place += fmt.Sprintf("case %d: ", i+1)
		}
		if p.fleet == nil || !p.happens(m) {
			verbs[m.verb](p, m)
		}
	}
}

// happens makes a move that only a fleet has, and reports whether it is one.
func (p *play) happens(m *move) bool {
	p.Helper()
	if _, ok := verbs[m.verb]; ok {
		return false
	}
	do, ok := p.fleet.Moves[m.verb]
	if !ok {
		p.fatalf("%q is no move", m.verb)
	}
	do(m.own)
	p.calm()
	return true
}
