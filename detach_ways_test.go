package throttle_test

import (
	"io"
	"net/http"

	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

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
