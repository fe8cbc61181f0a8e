package storetest

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A verb has the subject of a move, the form of its expectation, and its action.
type verb struct {
	needs string
	wants int
	do    func(*play, *move)
}

// verbs are all moves; vectors/README.md describes them.
var verbs = map[string]verb{
	"at":   {"time", nothing, (*play).passes},
	"wait": {"time", nothing, (*play).passes},

	"book":    {"charge", answers, (*play).books},
	"try":     {"charge", answers, (*play).books},
	"again":   {"caller", answers, each((*play).bookAgain)},
	"board":   {"caller", nothing, each((*play).boards)},
	"cancel":  {"caller", nothing, each((*play).cancel)},
	"release": {"caller", nothing, each((*play).release)},
	"settle":  {"caller number", nothing, each((*play).settles)},
	"called":  {"caller", nothing, each((*play).isCalled)},
	"waits":   {"caller", nothing, each((*play).isWaiting)},

	"pause":  {"charge time", nothing, budget((*play).pauses)},
	"resume": {"charge", nothing, budget((*play).resumes)},
	"refuse": {"charge", levels, budget((*play).refuse)},
	"states": {"charge number", nothing, budget((*play).isTold)},
	"status": {"charge", statuses, budget((*play).isStatus)},
	"shows":  {"charge", statuses, budget((*play).isStatus)},

	"watch":   {"who", guesses, (*play).watches},
	"move":    {"caller", answers, each((*play).moveOn)},
	"stop":    {"caller", nothing, each((*play).stop)},
	"good":    {"caller", nothing, each((*play).isGood)},
	"bad":     {"caller", nothing, each((*play).isBad)},
	"useless": {"caller", nothing, each((*play).isUseless)},
	"quiet":   {"caller", nothing, each((*play).isQuiet)},
	"deaf":    {"caller", nothing, each((*play).watchDeaf)},

	"come":    {"who", guesses, (*play).come},
	"leave":   {"caller", nothing, each((*play).leave)},
	"change":  {"caller charge", nothing, each((*play).change)},
	"return":  {"caller", nothing, each((*play).comeBack)},
	"begin":   {"caller", answers, (*play).isBegun},
	"set":     {"caller", answers, (*play).isSet},
	"over":    {"caller time", nothing, (*play).isOver},
	"order":   {"caller", nothing, (*play).isInOrder},
	"most":    {"caller number time", nothing, (*play).areAtMost},
	"busy":    {"charge", nothing, budget((*play).isBusy)},
	"gapless": {"charge caller time", nothing, (*play).isGapless},
	"near":    {"caller number", nothing, (*play).isNear},

	"crowd":  {"charge", guesses, (*play).crowd},
	"ride":   {"charge", nothing, (*play).ride},
	"queue":  {"charge", answers, (*play).queue},
	"steady": {"charge", nothing, (*play).steady},
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
func budget(do func(*play, *move, store.Charge)) func(*play, *move) {
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

// run plays all cases on one store in order, each on budgets of its own and from a
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

// play makes the moves of the i-th case. A panic is a mistake in a move that can be seen only
// now, as a caller that a move needs to be a visitor, or one of the store.
func (p *play) play(moves []move, i int) {
	p.Helper()
	defer func() {
		if why := recover(); why != nil {
			p.fatalf("the move cannot be made: %v\n%s", why, debug.Stack())
		}
	}()

	for j := range moves {
		m := &moves[j]
		p.enter(m.program)
		p.place = m.place
		if i > 0 {
			p.place += fmt.Sprintf("case %d: ", i+1)
		}
		if p.fleet == nil || !p.happens(m) {
			verbs[m.verb].do(p, m)
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
