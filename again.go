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
const handMost = 4 * time.Second

var (
	// errFar says that the start is too far away to wait for it with a
	// connection in hand. No caller sees it.
	errFar = errors.New("throttle: the start is far away")

	errWentOn = errors.New("throttle: the request may have been written though it was stopped")
)

// regain gets the request's body for another attempt, and reports whether there
// can be one: not if the base has touched a body that cannot be had again.
func (j *journey) regain() bool {
	switch {
	case j.content == nil || j.content == http.NoBody:
		j.regained = j.content
	case j.req.GetBody == nil:
		if !j.shield.giveUp() {
			return false
		}
		j.regained = j.content
	default:
		body, err := j.req.GetBody()
		if err != nil {
			return false
		}
		j.regained = body
	}
	return true
}

// another is the journey of a request whose attempt was given up. It takes over
// all that is held, but nothing that the base has seen.
func (j *journey) another() *journey {
	j.last.Lock()
	next := &journey{
		hold: j.hold, t: j.t, req: j.req, table: j.table, bill: j.bill,
		content: j.regained, again: true, dialled: j.dialled,
	}
	j.hold, j.regained = hold{}, nil
	j.last.Unlock()
	j.end()
	return next
}

// early is how much before its start the request is handed to the base. Whose
// attempt was given up would come too late again with the usual time alone, if
// its connections take longer.
func (j *journey) early() time.Duration {
	usual := j.t.dials.usual(j.req.URL.Host)
	if usual == 0 {
		return 0
	}
	return max(usual, j.dialled)
}

// drop is for a request that was to wait for another attempt and gets none,
// because the base went on or panicked. It may have arrived: its start stays
// booked, or one is booked for it.
func (j *journey) drop() {
	if !j.grant.OK {
		turn := j.inLine()
		j.cancel()
		if turn {
			j.owe()
		}
	}
	if j.regained != nil {
		j.regained.Close()
		j.regained = nil
	}
}

// owe books a start for what may have arrived, however far away it is.
func (j *journey) owe() {
	ctx, cancel := j.toTell(tellTime)
	defer cancel()
	b := Booking{Charges: slices.DeleteFunc(slices.Clone(j.booking.Charges), inFlightOnly), MaxWait: -1}
	if _, err := j.store.Book(ctx, &b); err != nil {
		j.failedTo(ctx, &b.Charges[0], 0, err)
	}
}

// A shield is the body that the base gets if it can be had only once. When the
// attempt is given up the body is taken away from the base.
type shield struct {
	io.ReadCloser

	mu     sync.Mutex
	read   bool
	closed bool
	away   bool
}

// giveUp takes the body away, unless it was read or closed.
func (s *shield) giveUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = !s.read && !s.closed
	return s.away
}

// Read implements [io.Reader].
func (s *shield) Read(p []byte) (int, error) {
	s.mu.Lock()
	s.read = true
	away := s.away
	s.mu.Unlock()
	if away {
		return 0, errFar
	}
	return s.ReadCloser.Read(p)
}

// Close implements [io.Closer].
func (s *shield) Close() error {
	s.mu.Lock()
	over := s.closed || s.away
	s.closed = true
	s.mu.Unlock()
	if over {
		return nil
	}
	return s.ReadCloser.Close()
}
