package throttle_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP13_NewPoliciesWhileItWaitsForAnotherAttempt let it pass, with its body.
func TestP13_NewPoliciesWhileItWaitsForAnotherAttempt(t *testing.T) {
	for _, c := range []struct {
		name string
		body io.Reader
		at   time.Duration
	}{
		{"once, in line", newOnceBody(), 20 * time.Second},
		{"once, its start is near", newOnceBody(), 59100 * ms},
		{"with GetBody, in line", strings.NewReader("whole"), 20 * time.Second},
		{"with GetBody, its start is near", strings.NewReader("whole"), 59100 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bodies []string
				store, d := newWatchSpy(), newDialer(always(time.Second))
				send := orderly(d, &bodies)
				tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{ninePerSecond},
					Base: base(func(r *http.Request) (*http.Response, error) {
						if len(d.handed.seen()) > 0 { // by pass, without a trace
							defer r.Body.Close()
							bodies = append(bodies, string(must(io.ReadAll(r.Body))))
							return answer(200, "")(r)
						}
						return send(r)
					})}))
				time.AfterFunc(c.at, func() { _ = tr.SetPolicies(nil) })
				r := post(t, home, c.body)
				own := r.Body
				charge := tr.Explain(r)[0]
				time.AfterFunc(300*ms, func() { _ = store.Pause(t.Context(), charge, time.Minute) })
				begin := time.Now()
				resp, err := tr.RoundTrip(r)
				require.NoError(t, err)
				require.Equal(t, c.at, time.Since(begin))
				require.Same(t, r, resp.Request)
				require.Equal(t, own, r.Body, "the caller's request is as it was")
				require.Equal(t, []string{"whole"}, bodies)
				if b, ok := c.body.(*onceBody); ok {
					require.EqualValues(t, 1, b.closed.Load())
				}
				require.Empty(t, store.going, "no watch goes on")
				require.Equal(t, c.at > 59*time.Second, store.begun == 1, "over a start, and not over a place in line")
				st, err := store.Status(t.Context(), charge)
				require.NoError(t, err)
				require.Zero(t, st.Waiting, "its place is given back")
			})
		})
	}
}

// TestP13_ABaseThatClosesLate closes what it got of the attempt that was given up
// while the next one is being made.
func TestP13_ABaseThatClosesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d, body := newWatchSpy(), newDialer(always(time.Second)), newOnceBody()
		bodies := []string{}
		var late io.ReadCloser
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{ninePerSecond},
			Base: base(func(r *http.Request) (*http.Response, error) {
				_, _ = d.handed.RoundTrip(r)
				if err := d.connect(r); err != nil {
					late = r.Body
					return nil, err
				}
				require.NoError(t, late.Close())
				_, err := late.Read(make([]byte, 1))
				require.Error(t, err)
				bodies = append(bodies, string(must(io.ReadAll(r.Body))))
				go func() { _ = r.Body.Close() }()
				return d.write(r)
			})}))
		_, err := banned(t, store, tr, post(t, home, body), time.Minute)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, d.handed.seen(), 2)
		require.Equal(t, []string{"whole"}, bodies)
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestP11_ALineIsNotStoodInWithAConnection for long: nobody knows how long.
func TestP11_ALineIsNotStoodInWithAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newWatchSpy(), newDialer(always(time.Second))
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{
			{Name: "pace", Limit: throttle.LeakyBucket(1, 5*time.Second), Jitter: -1},
			{Name: "one", Limit: throttle.Concurrency(1), Jitter: -1},
		}}))
		resp, err := tr.RoundTrip(get(t, home)) // written at 1 s; its answer lasts until 30 s
		require.NoError(t, err)
		time.AfterFunc(29*time.Second, func() { _ = resp.Body.Close() })
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, 4 * time.Second, 30 * time.Second}, d.handed.seen())
		require.Equal(t, []time.Duration{time.Second, 31 * time.Second}, d.written.seen())
		require.Zero(t, status(t, store, tr, get(t, home)).Waiting)
		store.allStopped(t)
	})
}
