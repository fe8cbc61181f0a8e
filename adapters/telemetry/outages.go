package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
)

// Outages know which stores did not answer. The stores are asked again only
// when somebody looks. The zero Outages are ready to use, and safe for
// concurrent use.
type Outages struct {
	mu    sync.Mutex
	since map[outage.Question]time.Time
}

// mostOutages is how many are known at a time. Others begin when one of these
// has ended.
const mostOutages = 16

// Note records that an event with this context reports a failure of a store. The context must be
// the context that throttle passed to [throttle.Config.Observe]: without it the store cannot be
// asked.
func (o *Outages) Note(ctx context.Context) {
	q := outage.QuestionOf(ctx)
	if q == nil {
		return
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if _, known := o.since[q]; known || len(o.since) >= mostOutages {
		return
	}
	if o.since == nil {
		o.since = make(map[outage.Question]time.Time)
	}

	o.since[q] = time.Now()
}

// Longest asks the stores of all noted failures whether they answer now, for [AskTime] at the most,
// and forgets the stores that do. An error that a store answers with is an answer. Longest returns the age of the
// oldest failure whose store still does not answer, or 0 if all answer.
func (o *Outages) Longest(ctx context.Context) (longest time.Duration) {
	o.mu.Lock()
	questions := make([]outage.Question, 0, len(o.since))
	for q := range o.since {
		questions = append(questions, q)
	}

	// Ask without the mutex: a store that is away answers late.
	o.mu.Unlock()

	ctx, stop := context.WithTimeout(ctx, AskTime)
	defer stop()

	var asked sync.WaitGroup
	for _, q := range questions {
		asked.Go(func() {
			if err := q.Ask(ctx); err == nil || outage.CauseOf(err) != outage.Away {
				o.end(q)
			}
		})
	}

	asked.Wait()

	o.mu.Lock()
	defer o.mu.Unlock()

	for _, since := range o.since {
		longest = max(longest, time.Since(since))
	}

	return longest
}

// end notes that a store answers.
func (o *Outages) end(q outage.Question) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, q)
}
