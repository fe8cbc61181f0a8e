// Package waitapi is the waiting API: an HTTP handler that holds callers until the policies of
// [throttle.Limiters] have room. It is for programs in other languages that cannot send their
// requests through package proxy. The command "throttle proxy" serves it.
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "wait": 5}
//	200 {"permit": "h0b…", "waited": 0.81, "policy": "shop", "lifetime": 60}
//
// A caller that does not want to wait long, because it has a queue of its own, says that with a place, which is empty at
// first. It is answered 202 with a place in line, and comes again with that, after Retry-After, to any process
// of the fleet: see [throttle.Limiters.Reserve].
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "place": ""}
//	202 {"place": "AcRz…", "retryAfter": 12.3}
//
// The caller then does its work. It may say what the work turned out to cost (/v1/settle), or that
// the work was refused (/v1/penalize). In the end it releases the permit (/v1/release). The fields
// are those of [throttle.Demand] and the arguments of [throttle.Permit]; times are in seconds.
// openapi.yaml, which /v1/openapi.yaml serves, has all requests and answers. Errors are
// application/problem+json.
//
// The handler lets in whoever reaches it, as a limiter does. Package proxy checks callers before
// the handler sees them; a program that serves the handler by itself has to check them, too.
//
// # Nothing is charged too little
//
// Each permit that a caller may have has a start of its own that is charged. So the policies count at
// least as much as callers do, if each permit is used for one piece of work, right after the answer:
//
//   - A start is given back only if no caller can have an answer for it: each caller that waited for
//     the permit has left, or its answer could not be written. An answer that was written may
//     have arrived. Its start stays charged, also if the caller has gone.
//   - A caller that had no answer may ask again with the same Idempotency-Key. If the first request
//     still waits, both wait for one permit, and both get it. If not, the caller gets the same permit for a start
//     that is now: a start that has become too old is given back, and another is booked in the same step. That is
//     right only if the work has not begun. So a key is for one piece of work, and a program that
//     was started anew, and does not know whether its work has begun, uses another key. After
//     /v1/settle or /v1/penalize the handler knows, and answers 409.
//   - A permit that nobody releases expires. What counts starts stays charged. What counts work in
//     flight is free then. If the work still goes on, the upstream sees more in flight than the
//     limit, so a lifetime must be longer than the work. The same is true of [Handler.Close].
//   - A cost that is told is charged, also if the caller leaves before the answer. After a 503 the
//     caller tells it again: settling twice is settling once. A cost that is told after the permit is
//     gone is not charged, and the answer is 410.
//
// Too much is charged for an answer that was written and did not arrive, if the caller does not ask
// again; and for the permits that a process was acquiring when it died.
//
// A start is for now. What is sent later than the policy's Jitter after the answer can arrive in
// another window. Callers that need long from the answer to the first byte need a larger Jitter.
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

// The defaults of a [Config].
const (
	DefaultMaxWait     = 5 * time.Second
	DefaultHeld        = 256
	DefaultPermits     = 16384
	DefaultLifetime    = time.Minute
	DefaultMaxLifetime = time.Hour
	DefaultMaxPenalty  = time.Hour // the most that a Retry-After closes a budget for
)

// Config is what [New] needs.
type Config struct {
	// Limiters have the budgets. Required.
	Limiters *throttle.Limiters

	// MaxWait is how long a caller is held at most. A caller asks for less. [throttle.NoWait]
	// holds nobody, [throttle.Forever] holds a caller for as long as it is there. Defaults to
	// [DefaultMaxWait].
	MaxWait time.Duration

	// Held is how many callers wait at once. Another one is refused with 503. Defaults to
	// [DefaultHeld].
	Held int

	// Permits is how many permits there are at once: those that were acquired, and neither
	// released nor expired. Another one is refused with 503. Defaults to [DefaultPermits].
	Permits int

	// Lifetime is how long a permit lasts whose caller does not say how long. Defaults to
	// [DefaultLifetime], or to MaxLifetime if that is less.
	Lifetime time.Duration

	// MaxLifetime is how long a permit may last. Defaults to [DefaultMaxLifetime], or to Lifetime
	// if that is more.
	MaxLifetime time.Duration

	// MaxPenalty is for how long a caller closes budgets at most by /v1/penalize, for the whole fleet. A
	// longer duration is cut. Negative: not at all, and the path answers 403. Defaults to
	// [DefaultMaxPenalty], which is as long as a Retry-After of the upstream closes a budget.
	MaxPenalty time.Duration
}

// check returns what is wrong with the configuration, all of it.
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

// setDefaults sets what is 0 to its default, in a configuration without mistakes.
func (c *Config) setDefaults() {
	setDefault(&c.MaxWait, DefaultMaxWait)
	setDefault(&c.Held, DefaultHeld)
	setDefault(&c.Permits, DefaultPermits)
	setDefault(&c.MaxPenalty, DefaultMaxPenalty)
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

// A Handler serves the waiting API. It is safe for concurrent use.
type Handler struct{ permits *table }

// New returns a handler.
func New(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	c.setDefaults()
	return &Handler{newTable(c)}, nil
}

// Close refuses all callers, those that wait too, and releases all permits: what is in flight
// under them counts no more. It releases 64 at a time, and returns when no caller waits and all are
// released. If ctx ends before, Close returns the error of ctx at once: a permit that was not released counts
// until its lease in the store ends, as that of a process that died. Close may be called more than once.
// A handler that is no longer used needs no Close if its permits may last until they expire.
func (h *Handler) Close(ctx context.Context) error { return h.permits.close(ctx) }

// Serves reports whether a path is one of the waiting API.
func (h *Handler) Serves(path string) bool {
	switch path {
	case "/v1/acquire", "/v1/release", "/v1/settle", "/v1/penalize", "/v1/openapi.yaml":
		return true
	}
	return false
}

// ServeHTTP implements [http.Handler]. It serves paths under /v1/.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
