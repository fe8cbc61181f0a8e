package throttle

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/fleetthrottle/throttle/internal/outage"
)

// A storeQuestion asks the store about a budget that nobody has. It lies where those of a group
// lie.
type storeQuestion struct {
	*engine
	group string
}

var errUnanswered = errors.New("throttle: callers wait for the store's answer")

// Ask implements [outage.Question]. The store may serve such a question and not the callers, as
// one does that cannot write.
func (q storeQuestion) Ask(ctx context.Context) error {
	if err := q.unheard(); err != nil {
		return err
	}
	_, err := q.status(ctx, nobodys(q.group))
	return err
}

// nobodys returns a charge of a budget that nobody has.
func nobodys(group string) Charge {
	return Charge{Budget: Budget{Group: group}, Limit: PerSecond(1), Cost: 1}
}

// unheard returns an error while callers wait for an answer that should have come.
func (e *engine) unheard() error {
	if e.unanswered.Load() > 0 {
		return errUnanswered
	}
	return nil
}

// status asks the store what a budget is like. If another store answers in its place, the error
// says why.
func (e *engine) status(ctx context.Context, c Charge) (Status, error) {
	var away error
	st, err := e.store.Status(outage.WithObserver(ctx, func(err error) { away = err }), c)
	return st, cmp.Or(err, away)
}

// withQuestion returns the context of an event. If the error says that the store did not do what
// it was asked of the charges, an observer can ask by the context whether the store answers.
func (e *engine) withQuestion(ctx context.Context, err error, charges []Charge) context.Context {
	if _, failed := errors.AsType[*StoreError](err); !failed {
		return ctx
	}
	i := slices.IndexFunc(charges, func(c Charge) bool { return !c.Node })
	if i < 0 {
		return ctx
	}
	return outage.WithQuestion(ctx, storeQuestion{e, charges[i].Budget.Group})
}
