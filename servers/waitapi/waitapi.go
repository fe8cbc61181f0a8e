// Package waitapi is the waiting API: an HTTP handler that holds callers until
// the policies of [throttle.Limiters] have room. It is for programs in other
// languages that cannot send their requests through package proxy. The command
// "throttle proxy" serves it.
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "wait": 5}
//	200 {"permit": "h0b…", "waited": 0.81, "policy": "shop", "lifetime": 60}
//
// A caller with a queue of its own can ask for a place in line instead of a
// long wait. It sends an empty place at first and gets 202 with its place.
// After Retry-After it sends the place to any process of the fleet: see
// [throttle.Limiters.Reserve].
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "place": ""}
//	202 {"place": "AcRz…", "retryAfter": 12.3}
//
// The caller then does its work. It can correct the cost (/v1/settle), or
// report that the upstream refused the work (/v1/penalize). Finally it releases
// the permit (/v1/release). Fields are named as in [throttle.Demand] and the
// methods of [throttle.Permit]. Times are in seconds. /v1/openapi.yaml
// describes all requests and answers. Errors are application/problem+json.
//
// The handler does not authenticate callers. Package proxy does so before it
// calls the handler. A program that serves the handler alone must authenticate
// callers itself.
//
// # Nothing is charged too little
//
// Every permit that a caller may have has a charged start of its own. The
// policies therefore count at least as much work as callers do, provided that
// each permit is used for one piece of work, right after the answer:
//
//   - A start is given back only if no caller can have the answer: each caller
//     that waited for the permit has left, or the write of its answer failed.
//     An answer that was written may have arrived, so its start stays charged
//     even if the caller has gone.
//   - A caller without an answer may ask again with the same Idempotency-Key.
//     If the first request still waits, both requests get the same permit.
//     Otherwise the caller gets the same permit with a start that is now: a
//     start that has become too old is replaced in one step. This is correct
//     only if the work has not begun, so a key belongs to one piece of work. A
//     program that restarts and does not know whether its work has begun uses a
//     new key. After /v1/settle or /v1/penalize the handler knows that the work
//     has begun, and answers 409.
//   - A permit that is never released expires. Its starts stay charged, and its
//     slots in flight become free. If the work is still going on, the upstream
//     sees more in flight than the limit, so a lifetime must be longer than the
//     work. The same is true of [Handler.Close].
//   - A settled cost is charged even if the caller leaves before the answer.
//     After a 503 the caller settles again: settling is idempotent. A cost
//     settled after the permit has gone is not charged, and the answer is 410.
//
// Too much is charged for an answer that was written and did not arrive, if the
// caller does not ask again; and for permits that a process was acquiring when
// it crashed.
//
// A start is for now. A request sent later than the policy's Jitter after the
// answer can arrive in a different window. Callers that need more time between
// the answer and the first byte need a larger Jitter.
package waitapi

import (
	"context"
	_ "embed" // for openapi.yaml
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
)

// Defaults of a [Config].
const (
	DefaultMaxWait     = 5 * time.Second
	DefaultHeld        = 256
	DefaultPermits     = 16384
	DefaultLifetime    = time.Minute
	DefaultMaxLifetime = time.Hour
	DefaultMaxPenalty  = time.Hour // longest penalty by a Retry-After, too
)

// Config configures a [Handler].
type Config struct {
	// Limiters have the budgets. Required.
	Limiters *throttle.Limiters

	// MaxWait limits how long a caller is held. A caller can ask for less.
	// [throttle.NoWait] holds nobody. [throttle.Forever] holds a caller until
	// it leaves. Defaults to [DefaultMaxWait].
	MaxWait time.Duration

	// Held limits how many callers wait at once. Further callers are refused
	// with 503. Defaults to [DefaultHeld].
	Held int

	// Permits limits how many permits exist at once: acquired, and neither
	// released nor expired. Further requests are refused with 503. Defaults to
	// [DefaultPermits].
	Permits int

	// Lifetime is the lifetime of a permit whose caller does not ask for one.
	// Defaults to [DefaultLifetime], or to MaxLifetime if that is less.
	Lifetime time.Duration

	// MaxLifetime limits the lifetime that a caller can ask for. Defaults to
	// [DefaultMaxLifetime], or to Lifetime if that is more.
	MaxLifetime time.Duration

	// MaxPenalty limits how long /v1/penalize closes budgets for the whole
	// fleet. A longer duration is cut. A negative value disables the path,
	// which then answers 403. Defaults to [DefaultMaxPenalty], the longest time
	// that a Retry-After of the upstream closes a budget.
	MaxPenalty time.Duration
}

// check returns all mistakes in the configuration.
func (c *Config) check() error {
	var mistakes []error
	if c.Limiters == nil {
		mistakes = append(mistakes, errors.New("waitapi: Config.Limiters is missing: use throttle.NewLimiters"))
	}

	for _, f := range []struct {
		name     string
		negative bool
	}{{"Held", c.Held < 0}, {"Permits", c.Permits < 0}, {"Lifetime", c.Lifetime < 0}, {"MaxLifetime", c.MaxLifetime < 0}} {
		if f.negative {
			mistakes = append(mistakes, fmt.Errorf("waitapi: Config.%s is negative: use more than 0, or 0 for the default", f.name))
		}
	}

	if c.MaxPenalty > throttle.MaxPenalty {
		mistakes = append(mistakes, fmt.Errorf("waitapi: Config.MaxPenalty is %v: nothing is closed for longer than %v", c.MaxPenalty, throttle.MaxPenalty))
	}
	if c.MaxLifetime > 0 && c.Lifetime > c.MaxLifetime {
		mistakes = append(mistakes, fmt.Errorf("waitapi: Config.Lifetime is %v, which is more than MaxLifetime, %v", c.Lifetime, c.MaxLifetime))
	}

	return errors.Join(mistakes...)
}

// setDefaults replaces zero fields by their defaults.
func (c *Config) setDefaults() {
	setDefault(&c.MaxWait, DefaultMaxWait)
	setDefault(&c.Held, DefaultHeld)
	setDefault(&c.Permits, DefaultPermits)
	setDefault(&c.MaxPenalty, DefaultMaxPenalty)

	// A default must not make Lifetime longer than MaxLifetime.
	switch {
	case c.Lifetime == 0 && c.MaxLifetime == 0:
		c.Lifetime, c.MaxLifetime = DefaultLifetime, DefaultMaxLifetime
	case c.Lifetime == 0:
		c.Lifetime = min(DefaultLifetime, c.MaxLifetime)
	case c.MaxLifetime == 0:
		c.MaxLifetime = max(DefaultMaxLifetime, c.Lifetime)
	}
}

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// Handler serves the waiting API. It is safe for concurrent use. Create it with
// [New].
type Handler struct{ permits *table }

// New returns a handler, or an error that lists all mistakes in c.
func New(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	c.setDefaults()
	return &Handler{newTable(c)}, nil
}

// Close refuses all callers, including those that wait, and releases all
// permits, 64 at a time, so that their slots in flight become free. It returns
// when no caller waits and all permits are released. If ctx ends first, Close
// returns the error of ctx at once: the remaining permits count until their
// leases in the store expire, as after a crash. Further calls are allowed. A
// handler without Close leaks nothing: its permits expire.
func (h *Handler) Close(ctx context.Context) error { return h.permits.close(ctx) }

// Serves reports whether a path belongs to the waiting API.
func (h *Handler) Serves(path string) bool {
	switch path {
	case "/v1/acquire", "/v1/release", "/v1/settle", "/v1/penalize", "/v1/openapi.yaml":
		return true
	}
	return false
}

// ServeHTTP implements [http.Handler]. It serves paths under /v1/.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Limit how long a slow body holds a connection, also where no body is read: net/http waits for the rest
	// before it answers. A server without deadlines has only the caller's context.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}

	var serve func(http.ResponseWriter, *http.Request) *problem.Problem
	allow, allowed := "POST", r.Method == http.MethodPost

	switch r.URL.Path {
	case "/v1/acquire":
		serve = h.permits.acquire
	case "/v1/release":
		serve = h.permits.release
	case "/v1/settle":
		serve = h.permits.settle
	case "/v1/penalize":
		serve = h.permits.penalize
	case "/v1/openapi.yaml":
		serve = serveDescription
		allow, allowed = "GET, HEAD", r.Method == http.MethodGet || r.Method == http.MethodHead
	default:
		problem.New(http.StatusNotFound, "there is /v1/acquire, /v1/release, /v1/settle, /v1/penalize and /v1/openapi.yaml").Write(w)
		return
	}

	// RFC 9110 requires Allow in an answer with 405.
	if !allowed {
		w.Header().Set("Allow", allow)
		problem.New(http.StatusMethodNotAllowed, "the method is not "+allow).Write(w)
		return
	}

	if p := serve(w, r); p != nil {
		p.Write(w)
	}
}

//go:embed openapi.yaml
var description []byte

// serveDescription serves /v1/openapi.yaml.
func serveDescription(w http.ResponseWriter, _ *http.Request) *problem.Problem {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(description) // a caller that has gone needs no answer
	return nil
}
