package temporalthrottle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/temporalthrottle"
)

// A plain converter does not know converter.RawValue: it refuses it, or does nothing with it.
type plain struct {
	converter.DataConverter
	refuses error
}

func (p plain) FromPayloads(from *commonpb.Payloads, into ...any) error {
	for _, v := range into {
		if _, ok := v.(*converter.RawValue); ok {
			return p.refuses
		}
	}
	return p.DataConverter.FromPayloads(from, into...)
}

// TestPlainConverter: details of the activity's own that cannot be read stay, and a place alone is found.
func TestPlainConverter(t *testing.T) {
	t.Parallel()
	for _, refuses := range []error{nil, errors.New("unknown type")} {
		j := job{limiters(t, throttle.PerMinute(1))}
		run := func(before any) (progress int, recorded converter.EncodedValues, err error) {
			env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
			env.SetDataConverter(plain{converter.GetDefaultDataConverter(), refuses})
			env.RegisterActivity(j.Run)
			env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) { recorded = details })
			env.SetHeartbeatDetails(before)
			result, err := env.ExecuteActivity(j.Run)
			if err == nil {
				require.NoError(t, result.Get(&progress))
			}
			return progress, recorded, err
		}
		progress, _, err := run(7)
		require.NoError(t, err)
		require.Equal(t, 7, progress)
		_, recorded, err := run(7)
		var later *temporal.ApplicationError
		require.ErrorAs(t, err, &later)
		require.Equal(t, temporalthrottle.ErrorType, later.Type())
		require.Nil(t, recorded, "its own details stay")

		_, place, err := j.limits.Reserve(throttle.WithMaxWait(t.Context(), time.Millisecond), nil, throttle.Demand{Policy: "api"})
		require.NoError(t, err)
		_, recorded, err = run(map[string]any{"throttle:place": place})
		require.ErrorAs(t, err, &later)
		var kept map[string]*throttle.Place
		require.NoError(t, recorded.Get(&kept))
		require.WithinDuration(t, place.When, kept["throttle:place"].When, time.Second, "it was redeemed")
	}
}

// TestManyDetails: the SDK does not say how many there are.
func TestManyDetails(t *testing.T) {
	t.Parallel()
	l := limiters(t, throttle.PerSecond(1))
	use(t, l, 1)
	s := &standIn{details: payloads(t, 1, 2, 3, 4, 5, 6, 7, 8, 9)}
	s.serve(t, job{l}.Run)
	require.Equal(t, []string{"attempt", "10 details", temporalthrottle.ErrorType}, s.events[:3])
	require.Equal(t, []string{"attempt", "9 details", "completed"}, s.events[len(s.events)-3:])
}

func payloads(t *testing.T, values ...any) *commonpb.Payloads {
	made, err := converter.GetDefaultDataConverter().ToPayloads(values...)
	require.NoError(t, err)
	return made
}

// TestLocalActivity waits in its worker: it has no heartbeat details.
func TestLocalActivity(t *testing.T) {
	t.Parallel()
	j := job{limiters(t, throttle.PerSecond(1))}
	use(t, j.limits, 1)
	env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
	result, err := env.ExecuteLocalActivity(j.Run)
	require.NoError(t, err)
	var progress int
	require.NoError(t, result.Get(&progress))
	require.Equal(t, -1, progress)
}
