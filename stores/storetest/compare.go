package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// isAnswer compares the answer to a booking with a move's expectation.
func (p *play) isAnswer(m *move, k store.Booking, g store.Grant, want answer) {
	p.Helper()
	switch want.kind {
	case "start":
		p.isTime(k, g, want.bounds)
		p.isHolder(m, k, g, g.Wait > k.NotBefore)
	case "full":
		if g.OK || g.Wait != 0 || g.Ready != nil {
			p.errorf("booked at %v: %+v, want a refusal that names no time", p.now(), g)
		}
		p.isHolder(m, k, g, true)

	case "line":
		p.isPlace(m, k, g, want)
	default:
		p.errorf("%q is no answer to a booking", want.kind)
	}

	if m.want.over != nil {
		got, over := overOf(g, len(k.Charges)-1), *m.want.over
		if got < over.low.Duration || got > over.high.Duration {
			p.errorf("booked at %v: Over is %v, want %v to %v", p.now(), got, over.low, over.high)
		}
	}
}

// isTime wants a start at some time, or to be told of it if that is too long to wait.
func (p *play) isTime(k store.Booking, g store.Grant, want bounds) {
	p.Helper()
	got, ok := p.now()+g.Wait, k.MaxWait < 0 || g.Wait <= k.MaxWait
	switch low, high := want.low.since(p.now()), want.high.since(p.now()); {
	case got < low || got > high:
		p.errorf("booked at %v: OK %t, the start is at %v, want %v to %v", p.now(), g.OK, got, low, high)
	case g.OK != ok:
		p.errorf("booked at %v: OK %t with a wait of %v, want %t", p.now(), g.OK, g.Wait, ok)
	case g.OK && g.Handle.Start == 0:
		p.errorf("booked at %v: the grant has no handle", p.now())
	case g.Ready != nil:
		p.errorf("booked at %v: a start, or a refusal, that also waits in line", p.now())
	}
}

// isHolder checks which charge is said to have held a booking back, if the move says so; otherwise there is nothing to check
// wait longer than it wants to.
func (p *play) isHolder(m *move, k store.Booking, g store.Grant, waits bool) {
	p.Helper()
	none := g.HeldBy == store.NotHeld && !g.Paused
	switch {
	case !waits && !none:
		p.errorf("booked at %v: nothing held it back, but Held is %d, Paused %t", p.now(), g.HeldBy, g.Paused)
	case waits && (g.HeldBy < 0 || g.HeldBy >= len(k.Charges) || k.Charges[g.HeldBy].Shadow):
		p.errorf("booked at %v: it has to wait %v, but Held is %d", p.now(), g.Wait, g.HeldBy)
	case waits && m.want.held != nil && (k.Charges[g.HeldBy].Budget != *m.want.held || g.Paused != m.want.paused):
		p.errorf("booked at %v: Held %d, Paused %t; want %v, %t", p.now(), g.HeldBy, g.Paused, m.want.held, m.want.paused)
	}
}

// isPlace wants a place in line. When there will be room in flight nobody can know; of a
// line for a start the wait is guessed.
func (p *play) isPlace(m *move, k store.Booking, g store.Grant, want answer) {
	p.Helper()
	guessed := want.any || want.high.Duration > 0
	switch {
	case g.OK || g.Ready == nil:
		p.errorf("booked at %v: OK %t with a wait of %v, want a place in line", p.now(), g.OK, g.Wait)
	case guessed && g.Turn == nil:
		p.errorf("booked at %v: the place in line has no Turn", p.now())
	case guessed && !want.any && !about(g.Wait, want.high.Duration):
		p.errorf("booked at %v: a place in line with a wait of %v, want about %v", p.now(), g.Wait, want.high)
	case !guessed && g.Handle.Place == 0:
		p.errorf("booked at %v: the place in line has no handle", p.now())
	case !guessed && g.Wait != 0:
		p.errorf("booked at %v: a place in line that says to wait %v, which nobody can know", p.now(), g.Wait)
	}

	p.isHolder(m, k, g, true)
	if !guessed {
		p.isUncalled(g)
	}
}

// about allows for a guess: an eighth, and a tenth of a second.
func about(got, want time.Duration) bool { return (got - want).Abs() <= want/8+100*ms }
