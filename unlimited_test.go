package throttle_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// unlimited is a policy that only answers close.
func unlimited(name string) throttle.Policy {
	return throttle.Policy{Name: name, Limit: throttle.Unlimited()}
}

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
	p := unlimited("row")
	p.Headroom = map[throttle.Priority]float64{throttle.Low: 0.5}
	p.Quota = func(*http.Response) (q throttle.Quota, ok bool) { return q, false }
	_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.EqualError(t, err, strings.Join([]string{
		`throttle: policy "row": Headroom: an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number`,
		`throttle: policy "row": Quota: an unlimited policy has no number that an answer could lower: set a limit with a number`,
	}, "\n"))

	p = unlimited("row")
	p.Headroom = map[throttle.Priority]float64{throttle.High: 0}
	p.Cost = func(*http.Request) int { return throttle.Unlimited().Capacity() }
	p.Settle = func(*http.Response) int { return 3 }
	p.Jitter, p.Shadow, p.Scope = time.Second, true, throttle.Node
	_, err = throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
	require.NoError(t, err)
}

func TestUnlimitedCostThatIsTooLarge(t *testing.T) {
	l := newLimiter(t, memstore.New(), unlimited("row"))
	_, err := l.Acquire(t.Context(), "", 1<<40)
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), "", 1<<40+1)
	require.EqualError(t, err, `throttle: policy "row" (unlimited): a cost of 1099511627777 can never fit`)
}

// TestP11_UnlimitedRequests sends requests, of which an answer closes the row for those
// that come later. Nothing is told to settle.
func TestP11_UnlimitedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := memstore.New(), newStarts()
		row := unlimited("row")
		row.Settle = func(*http.Response) int { return 100 }
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{row}}))
		for range 100 {
			require.NoError(t, send(t, tr, get(t, home)))
		}
		l, err := tr.Limiter("row")
		require.NoError(t, err)
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, throttle.Status{Limit: throttle.Unlimited()}, st)
		require.Equal(t, "unlimited", tr.Explain(get(t, home))[0].Limit.String())

		require.NoError(t, l.Pause(t.Context(), "", time.Minute))
		err = send(t, tr, get(t, home).WithContext(throttle.WithMaxWait(t.Context(), time.Second)))
		require.ErrorContains(t, err, `policy "row" (unlimited): closed by a penalty, would wait 1m0s`)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.True(t, limited.Paused)

		begin, waiters := time.Now(), fallAsleep(t, tr, 5, patiently(t))
		time.Sleep(10 * time.Second)
		require.NoError(t, l.Resume(t.Context(), ""))
		waiters.all.Wait()
		require.Equal(t, 10*time.Second, time.Since(begin))
		require.Len(t, s.seen(), 105)
	})
}

// TestP11_UnlimitedSleepers sleep until a start that another row has set, when an
// unlimited one is closed. They book anew, and one goes first.
func TestP11_UnlimitedSleepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := exactly(throttle.PerSecond(1))
		two.Name = "one"
		tr := must(throttle.New(throttle.Config{Store: memstore.New(), Base: newStarts(), Policies: []throttle.Policy{two, unlimited("row")}}))
		require.NoError(t, send(t, tr, get(t, home)))
		waiters := fallAsleep(t, tr, 2, patiently(t))
		time.Sleep(900 * time.Millisecond)
		l, err := tr.Limiter("row")
		require.NoError(t, err)
		require.NoError(t, l.Pause(t.Context(), "", 5*time.Second))
		waiters.all.Wait()
		for _, at := range waiters.departures() {
			require.GreaterOrEqual(t, at, 5900*time.Millisecond)
		}
	})
}
