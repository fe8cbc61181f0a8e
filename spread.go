package throttle

import (
	"errors"
	"math"
	"slices"
	"time"
)

// errWide says that the store is so much nearer now that a start with less room
// behind it may come earlier. No caller sees it.
var errWide = errors.New("throttle: the start is wider than it need be")

// spread asks for room behind the start where the store is so far away that its
// answer alone would use up what a grant may age.
func (h *hold) spread() time.Duration {
	if h.jitter == 0 {
		return 0
	}
	lag := h.lag.get()
	return min(max(0, lag+lag/4-h.jitter*handOn/sevenths/2), mostSpread(h.booking.Charges))
}

// widen books with another Spread. Starts that are wider than their pace do not
// keep it: it would keep each as far from the next as the store is away.
func (h *hold) widen(s time.Duration) {
	h.booking.Spread = s
	for i := range h.booking.Charges {
		c := &h.booking.Charges[i]
		if c.Pace = pace(c.Limit); s > c.Pace {
			c.Pace = 0
		}
	}
}

// mostSpread is the most that fits into the fixed windows among the charges. If
// the store is slower than that, no grant can be proved to be in time.
func mostSpread(charges []Charge) time.Duration {
	most := time.Duration(math.MaxInt64)
	for i := range charges {
		if c := &charges[i]; c.Limit.kind == Aligned && c.Limit.per > 0 {
			most = min(most, (c.Limit.per-c.Jitter)/2)
		}
	}
	return most
}

// muchOf is what part of a window Spread must take for a start to be worth booking
// anew when less would do.
const muchOf = 20

// narrower returns a channel that is closed when the store has become much
// nearer; nil if that is of no use to who sleeps until a start.
func (h *hold) narrower() <-chan struct{} {
	if h.wide() {
		return h.lag.fall()
	}
	return nil
}

// wide reports whether Spread takes much of a window.
func (h *hold) wide() bool {
	return slices.ContainsFunc(h.booking.Charges, func(c Charge) bool {
		return !c.Shadow && c.Limit.per > 0 && h.booking.Spread > c.Limit.per/muchOf
	})
}
