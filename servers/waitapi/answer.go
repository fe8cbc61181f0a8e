package waitapi

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
	"github.com/fleetthrottle/throttle/store"
)

// soon is when a caller may come again that was refused for want of room in this process.
const soon = time.Second

// refuse returns an answer that asks the caller to come again.
func refuse(detail string) *problem.Problem {
	p := problem.New(http.StatusServiceUnavailable, detail)
	p.RetryAfter = soon
	return p
}

// errClosed is why waits end when the handler does.
var errClosed = errors.New("waitapi: the handler was closed")

// errGone is why callers have no permit that was released, or has expired, before they were answered.
var errGone = errors.New("waitapi: the permit is gone")

// problemOf returns what an error of the limiters means to the caller.
func problemOf(err error) *problem.Problem {
	var full *throttle.LimitError
	var mistake *throttle.ConfigError
	switch {
	case errors.Is(err, errClosed):
		return refuse("this process ends")
	case errors.As(err, &mistake):
		p := problem.New(http.StatusBadRequest, mistake.Error())
		p.Policy = mistake.Policy
		return p
	}

	if p := problemOfPlace(err); p != nil {
		return p
	}

	p := problem.Of(err)
	if p == nil { // the permit was released while its start was awaited
		return problem.New(http.StatusGone, "the permit is gone: it was released meanwhile")
	}
	if errors.As(err, &full) && full.RetryAfter == 0 { // unknown, as for what is in flight
		p.RetryAfter = soon
	}

	return p
}

// problemOfPlace returns what it means that a place cannot be redeemed; nil if that is not what the error says.
func problemOfPlace(err error) *problem.Problem {
	var wrong *store.PlaceError
	if !errors.As(err, &wrong) {
		return nil
	}
	switch wrong.Problem {
	case store.PlaceExpired, store.PlaceRedeemed:
		return problem.New(http.StatusGone, strings.TrimPrefix(wrong.Error(), "throttle: ")+": send an empty place for a new one")
	}
	return problem.New(http.StatusBadRequest, strings.TrimPrefix(wrong.Error(), "throttle: ")+": send an empty place for a new one")
}
