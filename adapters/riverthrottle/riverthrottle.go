// Package riverthrottle keeps the jobs of [river] within the limits of an external API. A waiting
// job occupies no worker.
//
// A job that would have to wait is snoozed until its turn comes, which does not count as an
// attempt. Meanwhile the job keeps its place in line, before all later jobs, and before later
// callers that wait in memory. The place is in the metadata of the job.
package riverthrottle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// A Gate is a [rivertype.WorkerMiddleware] that lets jobs through when there is room for them: put it into Middleware
// of the [river.Config]. It is safe for concurrent use.
type Gate struct {
	river.MiddlewareDefaults
	limiters *throttle.Limiters
	demands  func(*rivertype.JobRow) []throttle.Demand
	patience time.Duration
}

var _ rivertype.WorkerMiddleware = (*Gate)(nil)

// Options configure a Gate. Only Demands is required.
type Options struct {
	// Demands returns the budgets that a job takes from, and the costs, by its Kind and
	// EncodedArgs. A job without demands is let through.
	Demands func(*rivertype.JobRow) []throttle.Demand

	// Patience is how long a job may wait in its worker before it is snoozed. It should exceed 5
	// seconds, the interval at which River looks for jobs whose snooze is over. Defaults to
	// [DefaultPatience].
	Patience time.Duration
}

// DefaultPatience is the Patience of [Options] that set none.
const DefaultPatience = 6 * time.Second

// MetadataKey is where the place of a job stands in its metadata.
const MetadataKey = "throttle:place"

// New returns a gate to the budgets of limiters, whose store must keep places: memstore or redisstore. The error has all mistakes.
func New(l *throttle.Limiters, o Options) (*Gate, error) {
	var mistakes []error
	if o.Demands == nil {
		mistakes = append(mistakes, errors.New("riverthrottle: set Options.Demands: it says which budgets a job needs"))
	}

	if l == nil {
		mistakes = append(mistakes, errors.New("riverthrottle: the limiters are missing"))
	} else {
		mistakes = append(mistakes, l.CheckPlaces())
	}

	if o.Patience < 0 {
		mistakes = append(mistakes, fmt.Errorf("riverthrottle: Options.Patience is %v: use more than 0, or 0 for %v", o.Patience, DefaultPatience))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}

	g := &Gate{limiters: l, demands: o.Demands, patience: o.Patience}
	if g.patience == 0 {
		g.patience = DefaultPatience
	}

	return g, nil
}

// Work implements [rivertype.WorkerMiddleware]. It works a job that may start or has no demands, and snoozes a job that would have to wait. Other errors are those
// of [throttle.Limiters.Reserve], and of the job's metadata. The permit ends when work returns.
func (g *Gate) Work(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	demands := g.demands(job)
	if len(demands) == 0 {
		return work(ctx)
	}

	old := placeOf(job)
	permit, place, err := g.admit(ctx, old, demands)
	switch {
	case err != nil:
		return err
	case place != nil:
		if err := river.MetadataSet(ctx, MetadataKey, place); err != nil {
			return err
		}
		return river.JobSnooze(place.RetryAfter())
	}
	defer permit.Release()

	// The old place is used up, even if the job fails: remove it, so that the next attempt gets a new one.
	if old != nil {
		if err := river.MetadataSet(ctx, MetadataKey, nil); err != nil {
			// The job does not run, so give its start back.
			permit.Cancel()
			return err
		}
	}

	return work(context.WithValue(ctx, permitKey{}, permit))
}

// admit returns the permit of a job or, if the job would wait for longer than patience, a new place. It reserves with old, the place of the job,
// or nil. If old cannot be redeemed, admit reserves without it.
func (g *Gate) admit(ctx context.Context, old *throttle.Place, demands []throttle.Demand) (*throttle.Permit, *throttle.Place, error) {
	ctx = throttle.WithMaxWait(ctx, g.patience)
	permit, place, err := g.limiters.Reserve(ctx, old, demands...)
	if errors.As(err, new(*store.PlaceError)) {
		return g.limiters.Reserve(ctx, nil, demands...)
	}
	return permit, place, err
}

// placeOf returns the place in the metadata of a job, or nil if there is none that can be read.
func placeOf(job *rivertype.JobRow) *throttle.Place {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(job.Metadata, &metadata) != nil {
		return nil
	}
	var place *throttle.Place
	if json.Unmarshal(metadata[MetadataKey], &place) != nil {
		return nil
	}
	return place
}

type permitKey struct{}

// Permit returns the permit of the job in ctx, to settle its cost or to close a budget that refused
// it, or nil if ctx has no permit.
func Permit(ctx context.Context) *throttle.Permit {
	p, _ := ctx.Value(permitKey{}).(*throttle.Permit)
	return p
}
