package throttle

import (
	"context"
	"slices"
	"time"
)

// A boarding is the second booking of a caller that had to wait for its start:
// of its InFlight charges alone, made when the start has come. The first one
// stays as it is. Booked anew it would lie a moment later, reach into the room of
// the starts booked behind it, and so go to the end of the queue.
type boarding struct {
	booking Booking
	grant   Grant
}

// aboard reports whether all InFlight charges are held. A grant without a wait
// holds its own.
func (h *hold) aboard() bool { return !h.inFlight || h.grant.Wait == 0 || h.boarded != nil }

// board takes the InFlight charges at a start that has come. If they have no
// room the start is given up for a place in line.
func (h *hold) board(ctx context.Context) error {
	b := &boarding{booking: Booking{
		Charges: slices.DeleteFunc(slices.Clone(h.booking.Charges), startsOnly),
		MaxWait: h.patience(ctx, now()), Away: h.away(ctx),
	}}
	if h.apart() {
		b.booking.MaxWait = 0
	}
	within, stop := h.within(ctx, &b.booking)
	defer stop()
	g, err := h.store.Book(within, &b.booking)
	if err != nil {
		h.cancel()
		return h.failure(ctx, err)
	}
	h.outage = false
	if g.OK && g.Wait == 0 {
		b.grant, h.boarded = g, b
		return nil
	}
	if g.OK { // a penalty has closed a budget meanwhile
		h.store.Cancel(&b.booking, g)
		return h.book(ctx)
	}
	if h.apart() {
		return h.book(ctx)
	}
	h.cancel()
	g.Held, g.Turn = h.index(&b.booking, g.Held), h.grant.Turn
	if h.grant = g; !h.placed() {
		return h.refusal(g)
	}
	h.tell(ctx, g, false)
	return nil
}

// apart reports whether a store may keep the charges apart, some for the fleet
// and some for the node. Then a place in line for a part of them is none for all:
// who has no room books all anew.
func (h *hold) apart() bool {
	c := h.booking.Charges
	return slices.ContainsFunc(c, func(other Charge) bool { return other.Node != c[0].Node })
}

// startsOnly reports whether a charge is for the start alone.
func startsOnly(c Charge) bool { return c.Limit.kind != InFlight }

// inFlightOnly reports whether a charge is for what runs.
func inFlightOnly(c Charge) bool { return c.Limit.kind == InFlight }

// index finds a charge of a boarding among all.
func (h *hold) index(b *Booking, i int) int {
	return slices.IndexFunc(h.booking.Charges, func(c Charge) bool {
		return i >= 0 && c.Budget == b.Charges[i].Budget
	})
}

// lineUp waits for the caller's turn in line, whose end nobody can know. For one that
// stands in line for a start there is a guess.
func (h *hold) lineUp(ctx context.Context, w waiting) error {
	var over, far <-chan time.Time
	if w.inHand && h.inLine() && h.due > w.until {
		return errFar
	}
	if h.maxWait > 0 {
		timer := time.NewTimer(h.ends - now())
		defer timer.Stop()
		over = timer.C
	}
	if w.inHand {
		timer := time.NewTimer(w.until - now())
		defer timer.Stop()
		far = timer.C
	}
	select {
	case <-h.grant.Ready:
		return nil
	case <-over:
		if h.inLine() {
			return nil // the store says how long it would be
		}
		h.cancel()
		h.room, h.roomBy = h.maxWait, "MaxWait is"
		return h.refusal(h.grant)
	case <-w.replaced:
		return errReplaced
	case <-far:
		return errFar
	case <-ctx.Done():
		return h.left(ctx)
	}
}

// flight returns the booking and the grant that hold the InFlight charges, if
// they are held.
func (h *hold) flight() (b *Booking, g Grant, ok bool) {
	switch {
	case h.boarded != nil:
		return &h.boarded.booking, h.boarded.grant, true
	case h.inFlight && h.grant.OK && h.grant.Wait == 0:
		return &h.booking, h.grant, true
	}
	return nil, Grant{}, false
}

// disembark gives back what is held of the InFlight charges, and with it a start
// that was granted together with them.
func (h *hold) disembark() {
	b, g, ok := h.flight()
	if !ok {
		return
	}
	h.store.Cancel(b, g)
	if h.boarded = nil; b == &h.booking {
		h.grant.OK = false
	}
}

// land ends what is in flight. The start stays booked: it was used.
func (h *hold) land() {
	if b, g, ok := h.flight(); ok {
		h.store.Release(b, g)
	}
}
