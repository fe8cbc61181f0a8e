package throttle

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// handMost is for how long a connection is held for a request that waits. A
// server closes one on which nothing comes, some after five seconds, and a ban
// lasts for minutes. What has to wait for longer waits without a connection.
const maxConnectionHold = 4 * time.Second

var (
	// errFar says that the start is too far away to wait for it with a
	// connection in hand. No caller sees it.
	errDetach = errors.New("throttle: the start is far away")

	errSentAnyway = errors.New("throttle: the request may have been written though it was stopped")
)

// regain gets the request's body for another attempt, and reports whether there
// can be one: not if the base has touched a body that cannot be had again.
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

// another is the journey of a request whose attempt was given up. It takes over
// all that is held, but nothing that the base has seen.
func (r *roundTrip) nextAttempt() *roundTrip {
	r.mu.Lock()
	next := &roundTrip{
		acquisition: r.acquisition, t: r.t, req: r.req, policies: r.policies, quote: r.quote,
		reqBody: r.rewound, detached: true, dialTook: r.dialTook,
	}
	r.acquisition, r.rewound = acquisition{}, nil
	r.mu.Unlock()
	r.end()
	return next
}

// early is how much before its start the request is handed to the base. Whose
// attempt was given up would come too late again with the usual time alone, if
// its connections take longer.
func (r *roundTrip) dialLead() time.Duration {
	usual := r.t.dials.usual(r.req.URL.Host)
	if usual == 0 {
		return 0
	}
	return max(usual, r.dialTook)
}

// drop is for a request that was to wait for another attempt and gets none,
// because the base went on or panicked. It may have arrived: its start stays
// booked, or one is booked for it.
func (r *roundTrip) abandon() {
	if !r.grant.OK {
		turn := r.inLine()
		r.cancel()
		if turn {
			r.bookArrival()
		}
	}
	if r.rewound != nil {
		r.rewound.Close()
		r.rewound = nil
	}
}

// owe books a start for what may have arrived, however far away it is.
func (r *roundTrip) bookArrival() {
	ctx, cancel := r.reportContext(reportWait)
	defer cancel()
	b := Booking{Charges: slices.DeleteFunc(slices.Clone(r.booking.Charges), countsSlot), MaxWait: -1}
	if _, err := r.store.Book(ctx, &b); err != nil {
		r.reportFailure(ctx, &b.Charges[0], 0, err)
	}
}

// A shield is the body that the base gets if it can be had only once. When the
// attempt is given up the body is taken away from the base.
type revocableBody struct {
	io.ReadCloser

	mu      sync.Mutex
	read    bool
	closed  bool
	revoked bool
}

// giveUp takes the body away, unless it was read or closed.
func (b *revocableBody) revoke() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked = !b.read && !b.closed
	return b.revoked
}

// Read implements [io.Reader].
func (b *revocableBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.read = true
	revoked := b.revoked
	b.mu.Unlock()
	if revoked {
		return 0, errDetach
	}
	return b.ReadCloser.Read(p)
}

// Close implements [io.Closer].
func (b *revocableBody) Close() error {
	b.mu.Lock()
	over := b.closed || b.revoked
	b.closed = true
	b.mu.Unlock()
	if over {
		return nil
	}
	return b.ReadCloser.Close()
}
