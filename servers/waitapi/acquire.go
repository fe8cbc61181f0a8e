package waitapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
	"github.com/fleetthrottle/throttle/store"
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
		// Look at the caller first: a caller that has left must not keep its start.
		case r.Context().Err() != nil:
			t.left(p, false)

			// The caller has gone, so the connection ends without an answer.
			panic(http.ErrAbortHandler)
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

// writeAnswer sends an answer and reports whether the caller may have it. Over HTTP/1 a failed write means
// that the answer is incomplete.
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

// errOtherBudget reports a policy and key that are not among the permit's
// budgets.
var errOtherBudget = errors.New("the permit is not one of this policy and key")

// storeTime limits a change of a permit's budgets.
const storeTime = 10 * time.Second

// release serves /v1/release. Releasing twice is fine: the first answer may have been lost.
func (t *table) release(w http.ResponseWriter, r *http.Request) *problem.Problem {
	name, bad := t.readChange(w, r, new(reader), nil)
	if bad != nil {
		return bad
	}
	if bad := t.end(name); bad != nil {
		return bad
	}
	done(w)
	return nil
}

// end ends the permit of a name.
func (t *table) end(name string) *problem.Problem {
	p, bad := t.take(name)
	if p != nil {
		p.inner.Release()
		p.leave() // ends a wait to acquire it again
	}
	return bad
}

// take removes the permit of a name from the table. It returns nil without a problem for a permit that is
// gone: the first answer to a release may have been lost.
func (t *table) take(name string) (*permit, *problem.Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byName[name]; p != nil {
		p.released = true
		t.drop(p, errGone)
		return p, nil
	}

	// The name is genuine and its lifetime is not over, so an earlier release has succeeded.
	if known, over := t.names.knows(name); known && !over {
		return nil, nil
	}
	_, bad := t.find(name)
	return nil, bad
}

// settle serves /v1/settle.
func (t *table) settle(w http.ResponseWriter, r *http.Request) *problem.Problem {
	var d reader
	var policy, key string
	var cost int
	name, bad := t.readChange(w, r, &d, map[string]field{
		"cost":   d.number(&cost, 0),
		"policy": d.text(&policy),
		"key":    d.text(&key),
	}, "cost")
	if bad != nil {
		return bad
	}

	return t.changePermit(w, r, name, func(ctx context.Context, p *permit) error {
		most, ok := p.mostCost(policy, key)
		switch {
		case !ok:
			return &throttle.ConfigError{Policy: policy, Field: "Key", Err: errOtherBudget}
		case policy == "" && key == "":
			return p.inner.Tell(ctx, throttle.Answer{}.WithCost(min(cost, most)))
		}

		return p.inner.TellBudget(ctx, policy, key, throttle.Answer{}.WithCost(min(cost, most)))
	})
}

// mostCost returns the highest cost that a caller may settle: the whole limit of the budget or, without a
// name, of the permit's only budget that counts starts. A full window is full, and one number must not fill
// many windows. ok is false if the permit has no such budget.
func (p *permit) mostCost(policy, key string) (most int, ok bool) {
	unnamed, hash := policy == "" && key == "", budgetHash(policy, key)
	for _, b := range p.budgets {
		if unnamed || b.hash == hash {
			most, ok = max(most, b.most), true
		}
	}
	return most, ok
}

// penalize serves /v1/penalize. It cuts a penalty that is too long. Refusing it would leave the budget open.
func (t *table) penalize(w http.ResponseWriter, r *http.Request) *problem.Problem {
	if t.c.MaxPenalty < 0 {
		return problem.New(http.StatusForbidden, "callers of this process may not close budgets")
	}

	var d reader
	var policies []string
	var duration time.Duration
	name, bad := t.readChange(w, r, &d, map[string]field{
		"duration": d.seconds(&duration, time.Millisecond, throttle.MaxPenalty),
		"policies": d.list(mostDemands, func(raw json.RawMessage, at string) {
			var policy string
			d.text(&policy)(raw, at)
			policies = append(policies, policy)
		}),
	}, "duration")
	if bad != nil {
		return bad
	}

	return t.changePermit(w, r, name, func(ctx context.Context, p *permit) error {
		return p.inner.Tell(ctx, throttle.Refused(min(duration, t.c.MaxPenalty)), policies...)
	})
}

// readChange reads a request about a permit, with these fields and the permit's name.
func (t *table) readChange(w http.ResponseWriter, r *http.Request, d *reader, fields map[string]field, required ...string) (name string, bad *problem.Problem) {
	body, bad := t.bodies.read(w, r)
	if bad != nil {
		return "", bad
	}
	all := map[string]field{"permit": d.text(&name)}
	for name, read := range fields {
		all[name] = read
	}
	d.read(body, all, append(required, "permit")...)
	return name, d.problem()
}

// changePermit changes a permit's budgets. It continues when the caller leaves: a higher cost must be
// charged.
func (t *table) changePermit(w http.ResponseWriter, r *http.Request, name string, change func(context.Context, *permit) error) *problem.Problem {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTime)
	defer cancel()

	p, bad := t.begin(name)
	if bad != nil {
		return bad
	}

	select {
	case p.change <- struct{}{}:
		defer func() { <-p.change }()
	case <-ctx.Done():
		return problemOf(&throttle.StoreError{Err: ctx.Err()})
	}

	if err := change(ctx, p); err != nil {
		return problemOf(err)
	}

	// The permit may have gone before the change, which then did nothing.
	if _, bad := t.begin(name); bad != nil {
		return bad
	}

	done(w)
	return nil
}

// begin returns the permit of a name, and notes that its work has begun.
func (t *table) begin(name string) (*permit, *problem.Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, bad := t.find(name)
	if bad == nil {
		p.begun = true
	}
	return p, bad
}

// done answers 204.
func done(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// soon is the Retry-After for lack of room in this process.
const soon = time.Second

// refuse returns a 503 with Retry-After.
func refuse(detail string) *problem.Problem {
	p := problem.New(http.StatusServiceUnavailable, detail)
	p.RetryAfter = soon
	return p
}

// errClosed reports that the handler was closed.
var errClosed = errors.New("waitapi: the handler was closed")

// errGone reports a permit that was released, or that expired, before its
// caller got an answer.
var errGone = errors.New("waitapi: the permit is gone")

// problemOf returns the answer for an error of the limiters.
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

	// The permit was released while it waited for its start.
	if p == nil {
		return problem.New(http.StatusGone, "the permit is gone: it was released meanwhile")
	}

	// Nobody knows when work in flight ends.
	if errors.As(err, &full) && full.RetryAfter == 0 {
		p.RetryAfter = soon
	}

	return p
}

// problemOfPlace returns the answer for a place that cannot be redeemed, or nil for further errors.
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
