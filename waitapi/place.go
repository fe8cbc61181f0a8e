package waitapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
)

// A placed is the answer to a caller that comes again later, and why its wait has ended.
type placed struct {
	Place      string  `json:"place"`
	RetryAfter float64 `json:"retryAfter"` // in seconds
}

// Error implements error.
func (p *placed) Error() string { return "waitapi: the caller has a place" }

// reserve returns the permit of a caller that has a place, or wants one; or a *placed.
func (q *acquireRequest) reserve(ctx context.Context, l *throttle.Limiters) (*throttle.Permit, error) {
	var permit *throttle.Permit
	var place *throttle.Place
	var err error
	if q.place == nil {
		permit, place, err = l.Reserve(ctx, q.demands...)
	} else {
		permit, place, err = l.Redeem(ctx, q.place, q.demands...)
	}
	if place == nil {
		return permit, err
	}
	text, _ := place.MarshalText() // never fails
	return nil, &placed{string(text), place.RetryAfter().Seconds()}
}

// place returns a field that is a place, or "": the caller has none, and wants one.
func (d *reader) place(q *acquireRequest) field {
	return func(raw json.RawMessage, at string) {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			d.mistake(at, "is not a string")
			return
		}
		if q.aside = true; text != "" {
			if q.place = new(throttle.Place); q.place.UnmarshalText([]byte(text)) != nil {
				d.mistake(at, "is no place: send it as it was answered, or \"\" for a new one")
			}
		}
	}
}

// prefersAside reports whether a caller asks by "Prefer: respond-async" for a place in place of a long wait.
func prefersAside(h http.Header) bool {
	for _, value := range h.Values("Prefer") {
		for preference := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == ',' || c == ';' }) {
			if strings.EqualFold(strings.TrimSpace(preference), "respond-async") {
				return true
			}
		}
	}
	return false
}

// writePlaced answers a caller that is to come again.
func writePlaced(w http.ResponseWriter, p *placed) {
	text, _ := json.Marshal(p) // never fails
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(p.RetryAfter)))))
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(text) // a caller that has gone comes without it, and gets another one
}

// problemOfPlace returns what it means that a place cannot be redeemed; nil if that is not what the error says.
func problemOfPlace(err error) *problem.Problem {
	var wrong *throttle.PlaceError
	if !errors.As(err, &wrong) {
		return nil
	}
	switch wrong.Problem {
	case throttle.PlaceExpired, throttle.PlaceRedeemed:
		return problem.New(http.StatusGone, strings.TrimPrefix(wrong.Error(), "throttle: ")+": send an empty place for a new one")
	}
	return problem.New(http.StatusBadRequest, strings.TrimPrefix(wrong.Error(), "throttle: ")+": send an empty place for a new one")
}
