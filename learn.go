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

// A penalty is what one policy read out of an answer.
type penalty struct {
	charge Charge
	length time.Duration
}

// learn lets every policy of the request look at its answer, and closes the
// budgets for which it means a penalty before the caller gets the answer.
func (j *journey) learn(resp *http.Response) {
	var penalties []penalty
	for i, r := range j.rules {
		if d := min(r.Penalty(resp), MaxPenalty); d > 0 {
			penalties = append(penalties, penalty{j.booking.Charges[i], d})
		}
	}
	if len(penalties) == 0 {
		return
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		j.tellOf(penalties)
	}()
	select {
	case <-told:
	case <-j.req.Context().Done(): // the fleet must know all the same
	}
}

// tellOf tells the store, and the observer, of penalties.
func (j *journey) tellOf(penalties []penalty) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.req.Context()), tellTime)
	defer cancel()
	for i := range penalties {
		p, kind := &penalties[i], Penalized
		err := j.store.Pause(ctx, p.charge, p.length)
		if err != nil {
			kind, err = StoreFailed, &StoreError{err}
		}
		if j.observe != nil {
			j.observe(ctx, eventOf(kind, &p.charge, p.length, err))
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
