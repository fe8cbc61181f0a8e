package throttle_test

import (
	"net/http"
	"strings"
	"testing"

	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

func TestUnlimited(t *testing.T) {
	l := throttle.Unlimited()
	require.Equal(t, throttle.KindUnlimited, l.Kind())
	require.Zero(t, l.N())
	require.Zero(t, l.Per())
	require.Equal(t, 1<<40, l.Capacity())
	text, err := l.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "unlimited", string(text))
	var again throttle.Limit
	require.NoError(t, again.UnmarshalText(text))
	require.Equal(t, l, again)
}

// TestUnlimitedTakesNoNumbers reports all that makes no sense at once, and nothing that
// does.
func TestUnlimitedTakesNoNumbers(t *testing.T) {
	p := throttle.Policy{Name: "row", Limit: throttle.Unlimited()}
	p.Headroom = map[throttle.Priority]float64{throttle.Low: 0.5}
	p.Quota = func(*http.Response) (q throttle.Quota, ok bool) { return q, false }
	_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.EqualError(t, err, strings.Join([]string{
		`throttle: policy "row": Headroom: an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number`,
		`throttle: policy "row": Quota: an unlimited policy has no number that an answer could lower: set a limit with a number`,
	}, "\n"))

	p = throttle.Policy{Name: "row", Limit: throttle.Unlimited()}
	p.Headroom = map[throttle.Priority]float64{throttle.High: 0}
	p.Cost = func(*http.Request) int { return throttle.Unlimited().Capacity() }
	p.Settle = func(*http.Response) int { return 3 }
	p.Jitter, p.Shadow, p.Scope = time.Second, true, throttle.Node
	_, err = throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.NoError(t, err)
}
