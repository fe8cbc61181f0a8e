package throttle

import "context"

// Lifeline returns the context of a request that was sent with ctx, and
// somebody looked at, and the function that ends it.
func Lifeline(ctx context.Context) (sent context.Context, end func()) {
	l := &lifeline{parent: ctx}
	l.Done()
	return l, l.end
}
