package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
)

// Outages know which stores did not answer. The stores are asked again only
// by [Outages.Longest]. The zero Outages are ready to use, and safe for
// concurrent use.
type Outages struct {
	mu    sync.Mutex
	since map[outage.Question]time.Time // when the failure of a store was noted first
}

// mostOutages is how many outages are known at a time. A further one is noted only after one of these
// has ended.
const mostOutages = 16

// Note records the failure of a store that an event reports. ctx must be the context that throttle passed
// to [throttle.Config.Observe] with the event: without it the store cannot be asked, and Note does nothing. A store whose failure is noted already keeps
// its time, and beyond 16 stores no failure is noted.
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
// and forgets the stores that do, even if they answer with an error. It returns the age of the
// oldest failure whose store still does not answer, or 0 if all answer.
func (o *Outages) Longest(ctx context.Context) (longest time.Duration) {
	o.mu.Lock()
	questions := make([]outage.Question, 0, len(o.since))
	for q := range o.since {
		questions = append(questions, q)
	}

	o.mu.Unlock()

	// Ask without the mutex, because a store that is away answers late, and all at once, because AskTime is for all of them together.
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

// end forgets the failure of a store that answers.
func (o *Outages) end(q outage.Question) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, q)
}
