package throttle

import "time"

// A grant may be used for so many sevenths of Jitter after its start. At the
// last look, right before the request is written, five: 10 of the default 35 ms
// are left for the way. Before that, two: the rest belongs to what comes
// between, such as a base that cannot be looked into.
const (
	sevenths = 7
	handOn   = 2
	lastLook = 5
)

// measure looks at what the charges ask of a grant. What is in flight is held
// and does not age.
func (h *hold) measure() {
	h.jitter, h.inFlight = 0, false
	for i := range h.booking.Charges {
		c := &h.booking.Charges[i]
		switch j := c.Jitter; {
		case c.Limit.kind == InFlight:
			h.inFlight = true
		case j > 0 && !c.Shadow && (h.jitter == 0 || j < h.jitter):
			h.jitter = j
		}
	}
}

// late returns how much too old the grant is to be used now, if some sevenths of
// Jitter may have passed; 0 if it is not.
func (h *hold) late(parts time.Duration) time.Duration {
	if h.jitter == 0 {
		return 0
	}
	age := now() - h.due + h.grant.Age - h.booking.Spread
	return max(0, age-h.jitter*parts/sevenths)
}
