package throttle

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// tellTime bounds how long an answer is kept from its caller while the store is
// told of a penalty.
const tellTime = time.Second

// learn lets every policy of the request look at its answer, and closes the
// budgets for which it means a penalty. The caller's context may have ended:
// the fleet must know all the same.
func (j *journey) learn(resp *http.Response) {
	for i, r := range j.rules {
		d := min(r.Penalty(resp), MaxPenalty)
		if d <= 0 {
			continue
		}
		c := &j.booking.Charges[i]
		ctx, cancel := context.WithTimeout(context.WithoutCancel(j.req.Context()), tellTime)
		kind := Penalized
		err := j.store.Pause(ctx, *c, d)
		if err != nil {
			kind, err = StoreFailed, &StoreError{err}
		}
		cancel()
		if j.observe != nil {
			j.observe(j.req.Context(), eventOf(kind, c, d, err))
		}
	}
}

// outcome is the kind of event that an error makes.
func outcome(err error) EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return GaveUp
	}
	return Refused
}
