package throttle_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP11_AnOperatorClosesAPolicysBudget by the key that the policy gives it.
func TestP11_AnOperatorClosesAPolicysBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		key := func(r *http.Request) string { return "of " + r.URL.Path }
		tr := newTransport(t, s, throttle.Policy{Name: "other", Limit: throttle.PerHour(9)},
			throttle.Policy{Name: "path", Match: "example.com/", Key: key, Limit: throttle.PerHour(9)})
		operator, err := tr.Limiter("path")
		require.NoError(t, err)
		require.NoError(t, operator.Pause(t.Context(), "of /a", time.Minute))
		st, err := operator.Status(t.Context(), "of /a")
		require.NoError(t, err)
		require.Equal(t, time.Minute, st.Paused)

		go func() {
			time.Sleep(20 * time.Second)
			if err := operator.Resume(t.Context(), "of /a"); err != nil {
				t.Error(err)
			}
		}()
		line(t, tr, 1, "https://example.com/b")
		line(t, tr, 1, "https://example.com/a")
		require.Equal(t, []time.Duration{0, 20 * time.Second}, s.seen())

		_, err = tr.Limiter("paths")
		require.EqualError(t, err, `throttle: policy "paths": Name: the transport has no policy of this name`)
	})
}

// TestP11_AnOperatorsPauseIsCapped, as every other.
func TestP11_AnOperatorsPauseIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, newStarts(), throttle.Policy{Name: "p", Limit: throttle.PerHour(9)})
		operator, err := tr.Limiter("p")
		require.NoError(t, err)
		require.NoError(t, operator.Pause(t.Context(), "", 100*365*24*time.Hour))
		st, err := operator.Status(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, throttle.MaxPenalty, st.Paused)
	})
}

// TestP11_EventsSayWhetherABudgetIsClosed or merely full.
func TestP11_EventsSayWhetherABudgetIsClosed(t *testing.T) {
	for name, closed := range map[string]bool{"closed": true, "full": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &events{}
				tr := must(throttle.New(throttle.Config{Store: newSpy(), Observe: seen.observe, Base: answer(200, ""),
					Policies: []throttle.Policy{onePerHour}}))
				if operator, err := tr.Limiter("hourly"); closed {
					require.NoError(t, err)
					require.NoError(t, operator.Pause(t.Context(), "", time.Minute))
				} else {
					require.NoError(t, send(t, tr, get(t, home)))
				}
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, closed, seen.first(t, throttle.Waiting).Paused)
			})
		})
	}
}
