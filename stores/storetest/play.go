package storetest

import (
	"slices"
	"testing/synctest"

	"github.com/fleetthrottle/throttle/store"
)

// A play is one case of a vector under way.
type play struct {
	*bench
	known map[string][]*caller // by label
	came  []*visitor           // all visitors

	fleet    *Fleet            // nil for a single program
	programs map[string]*bench // of the fleet
	program  string            // the program that makes the moves now
}

// A caller has asked the store for a start or a place in line. The moves say what it does next, unless it is a visitor, which
// goes on by itself.
type caller struct {
	ticket
	watched store.Watch   // of its start, or nil
	news    chan struct{} // of that watch
	visitor *visitor      // nil if it is none
	program string        // whose caller it is
}

// enter lets a program of the fleet make the moves that follow. Without a fleet it does nothing.
func (p *play) enter(program string) {
	if p.fleet == nil {
		return
	}

	// The bench of a program differs from the others only in its store.
	b, ok := p.programs[program]
	if !ok {
		b = new(bench)
		*b = *p.bench
		b.store = p.fleet.Program(program)
		p.programs[program] = b
	}
	b.place, p.bench, p.program = p.place, b, program
}

// of returns the callers that a move names, in their order, or backwards if the move says so.
func (p *play) of(m *move) (all []*caller) {
	for _, ref := range m.callers {
		known := p.known[ref.label]
		last := ref.last
		if last < 0 {
			last = len(known) - 1
		}
		if ref.first > last || last >= len(known) {
			p.fatalf("%s has %d callers", ref.label, len(known))
		}

		all = append(all, known[ref.first:last+1]...)
	}

	if m.words["backwards"] {
		slices.Reverse(all)
	}

	return all
}

// name gives new callers the labels of their move: one each, or one for all. A label that ends with + adds them to the callers that it
// has. Other labels forget the callers that they had.
func (p *play) name(m *move, made []*caller) {
	for _, c := range made {
		c.program = p.program
	}

	for i, label := range m.labels {
		own := made
		if len(m.labels) > 1 {
			own = made[i : i+1]
		}

		if plus := len(label) - 1; label[plus] == '+' {
			label = label[:plus]
			own = append(p.known[label], own...)
		}

		p.known[label] = own
	}
}

// calm waits until all visitors have done their work of this moment, if there are any.
func (p *play) calm() {
	if len(p.came) > 0 {
		synctest.Wait()
	}
}

// visitors returns the callers that a move names, as visitors.
func (p *play) visitors(m *move) (all []*visitor) {
	for _, c := range p.of(m) {
		all = append(all, c.visitor)
	}
	return all
}

// checkUncalled fails if the place in line of a grant is called.
func (p *play) checkUncalled(g store.Grant) {
	p.Helper()
	select {
	case <-g.Ready:
		p.errorf("called at %v, but it is not its turn", p.now())
	default:
	}
}
