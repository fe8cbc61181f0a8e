package outage

import "context"

// A Question asks a store that did not answer whether it does now. Questions that are equal ask
// the same.
type Question interface {
	// Ask returns why the store does not answer still; nil: it does. It waits for the store as
	// long as ctx allows.
	Ask(ctx context.Context) error
}

// questionKey is the context key of a [Question].
type questionKey struct{}

// WithQuestion returns the context of an event that says that a store did not answer. By it an
// observer can ask whether the store does now.
func WithQuestion(ctx context.Context, q Question) context.Context {
	return context.WithValue(ctx, questionKey{}, q)
}

// QuestionOf returns the question in the context of an event; nil: there is none.
func QuestionOf(ctx context.Context) Question {
	q, _ := ctx.Value(questionKey{}).(Question)
	return q
}
