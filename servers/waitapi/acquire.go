package waitapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/fleetthrottle/throttle/internal/problem"
)

// acquire serves /v1/acquire.
func (t *table) acquire(w http.ResponseWriter, r *http.Request) *problem.Problem {
	q, bad := readAcquire(w, r, &t.c, t.bodies)
	if bad != nil {
		return bad
	}

	select {
	case t.waiting <- struct{}{}:
		defer func() { <-t.waiting }()
	default:
		return refuse("too many callers wait in this process")
	}

	p, bad := t.join(q)
	if bad != nil {
		return bad
	}

	for {
		answer, ready, err := t.outcome(p)
		switch {
		case r.Context().Err() != nil:
			t.left(p, false)
			panic(http.ErrAbortHandler) // the caller has gone: its connection ends without an answer
		case err != nil:
			t.left(p, false)
			if later := new(placed); errors.As(err, &later) {
				writePlaced(w, later)
				return nil
			}

			return problemOf(err)

		case answer != nil:
			t.left(p, writeAnswer(w, r, answer))
			return nil
		}

		select {
		case <-ready:
		case <-r.Context().Done():
		}
	}
}

// writeAnswer sends an answer, and reports whether it may arrive. Of HTTP/1 it is known that a
// caller has no whole answer if writing fails.
func writeAnswer(w http.ResponseWriter, r *http.Request, a *acquired) bool {
	text, _ := json.Marshal(a) // never fails
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	_, err := w.Write(text)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	return err == nil || errors.Is(err, http.ErrNotSupported) || r.ProtoMajor != 1
}
