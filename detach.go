package throttle

import (
	"net/http"
	"slices"
	"time"
)

// maxConnectionHold is for how long a waiting request holds a connection. A server
// closes an idle one, some after five seconds, and a ban lasts for minutes. A
// request that has to wait for longer waits without a connection.
const maxConnectionHold = 4 * time.Second

// rewindBody gets the request's body for another attempt, and reports whether it can:
// not if the base has touched a body that can be had only once.
func (r *roundTrip) rewindBody() bool {
	switch {
	case r.reqBody == nil || r.reqBody == http.NoBody:
		r.rewound = r.reqBody
	case r.req.GetBody == nil:
		if !r.revocable.revoke() {
			return false
		}
		r.rewound = r.reqBody
	default:
		body, err := r.req.GetBody()
		if err != nil {
			return false
		}
		r.rewound = body
	}
	return true
}

// end ends the attempt: the response is over, or there is none. It frees the slots.
// It may be called more than once.
func (r *roundTrip) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	r.stopWatch()
	if r.req.Context().Err() == nil {
		// A caller's context that has ended ends this one, with its own error.
		r.sentContext.end(nil)
	}
	if r.concurrent {
		r.releaseSlots()
	}
	if r.stopErr == errDetach {
		r.abandon()
	}
	if r.stopAfterFunc != nil {
		r.stopAfterFunc()
	}
}

// nextAttempt returns the attempt that follows one whose connection was given back.
// It takes over the acquisition, but nothing that the base has seen.
func (r *roundTrip) nextAttempt() *roundTrip {
	r.mu.Lock()
	next := &roundTrip{
		quotedAcquisition: quotedAcquisition{acquisition: r.acquisition, policies: r.policies, quote: r.quote},
		t:                 r.t, req: r.req, reqBody: r.rewound, detached: true, dials: r.dials, dialTook: r.dialTook,
	}
	r.acquisition, r.rewound = acquisition{}, nil
	r.mu.Unlock()
	r.end()
	return next
}

// abandon is for an attempt that was to be followed by another and is not, because
// the base went on or panicked. The request may have arrived: its start stays
// booked, or one is booked for it.
func (r *roundTrip) abandon() {
	if r.state == inLine || r.state == inSlotLine {
		r.cancel()
		r.bookArrival()
	}
	if r.rewound != nil {
		r.rewound.Close()
		r.rewound = nil
	}
}

// bookArrival books a start, however far away, for a request that may have arrived. What is in
// flight is over.
func (r *roundTrip) bookArrival() {
	b := Booking{Charges: slices.DeleteFunc(slices.Clone(r.booking.Charges), countsSlot), MaxWait: AnyWait}
	if len(b.Charges) == 0 {
		return
	}
	ctx, cancel := r.reportContext(reportWait)
	defer cancel()
	if _, err := r.store.Book(ctx, &b); err != nil {
		r.reportFailure(ctx, &b.Charges[0], 0, err)
	}
}
