package temporalthrottle

import (
	"context"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"

	"github.com/fleetthrottle/throttle"
)

// A kept is the heartbeat detail that keeps a place. It is the last detail.
type kept struct {
	Place *throttle.Place `json:"throttle:place"`
}

// details are the heartbeat details of the last attempt.
type details struct {
	own   []any           // the activity's own details, as converter.RawValue
	place *throttle.Place // nil without a place
	// opaque is whether the worker's DataConverter does not know converter.RawValue. The details of the
	// activity cannot be read without their types then, and are left alone: no place is kept.
	opaque bool
}

// HasHeartbeatDetails is [activity.HasHeartbeatDetails] without the place that [Acquire] keeps: it reports whether the
// activity has recorded details of its own.
func HasHeartbeatDetails(ctx context.Context) bool {
	d := detailsOf(ctx)
	return d.opaque || len(d.own) > 0
}

// detailsOf returns the heartbeat details of the last attempt, split into the activity's own details
// and the place, which stands last.
func detailsOf(ctx context.Context) details {
	if !activity.HasHeartbeatDetails(ctx) {
		return details{}
	}

	// Even a DataConverter that does not know converter.RawValue can read a place that stands alone.
	all, err := rawDetails(ctx)
	if err != nil || len(all) == 0 {
		var k kept
		if activity.GetHeartbeatDetails(ctx, &k) != nil || k.Place == nil {
			return details{opaque: true}
		}
		return details{place: k.Place}
	}

	// Read the last detail as a place. The targets of the other details are not used.
	last := len(all) - 1
	into := make([]any, len(all))
	for i := range last {
		into[i] = new(converter.RawValue)
	}

	var k kept
	into[last] = &k
	if activity.GetHeartbeatDetails(ctx, into...) != nil || k.Place == nil {
		return details{own: all} // the last detail is the activity's own
	}

	return details{own: all[:last], place: k.Place}
}

// rawDetails returns all heartbeat details as they are stored. It fails with a DataConverter that does not know converter.RawValue.
func rawDetails(ctx context.Context) (raw []any, err error) {
	// The SDK does not tell the number of details, and leaves surplus targets empty: offer more targets until one stays empty.
	for n := 4; ; n *= 2 {
		values, into := make([]converter.RawValue, n), make([]any, n)
		for i := range values {
			into[i] = &values[i]
		}

		if err := activity.GetHeartbeatDetails(ctx, into...); err != nil {
			return nil, err
		}

		raw = raw[:0] // begin again after a try with too few targets
		for _, v := range values {
			if v.Payload() == nil {
				return raw, nil
			}
			raw = append(raw, v)
		}
	}
}

// record stores the activity's own details and, behind them, a place for the next attempt. With a nil place it
// stores the activity's own details alone. It does nothing if the details are opaque.
func (d details) record(ctx context.Context, place *throttle.Place) {
	if d.opaque {
		return
	}

	// Append to a copy: own may have room behind its end.
	all := d.own[:len(d.own):len(d.own)]
	if place != nil {
		all = append(all, kept{place})
	}
	activity.RecordHeartbeat(ctx, all...)
}
