package throttle_test

import (
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// onePerSecond has the default jitter: two starts are spanOfOne apart.
var onePerSecond = throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)}

const spanOfOne = time.Second + throttle.DefaultJitter + us

// A dialer is a base that tells of its connections, as http.Transport does. It
// notes when it got each request and when it wrote it.
type dialer struct {
	handed, written *starts
	dial            func(*http.Request) time.Duration // how long each connection takes
	reused          bool                              // its connections were used before
}

func newDialer(dial func(*http.Request) time.Duration) *dialer {
	return &dialer{newStarts(), newStarts(), dial, false}
}

// always returns a dial that takes the same time for every request.
func always(d time.Duration) func(*http.Request) time.Duration {
	return func(*http.Request) time.Duration { return d }
}

func (d *dialer) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = d.handed.RoundTrip(r)
	if err := d.connect(r); err != nil {
		return nil, err
	}
	return d.write(r)
}

// connect gets a connection and tells of it.
func (d *dialer) connect(r *http.Request) error {
	if takes := d.dial(r); takes > 0 {
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Reused: d.reused})
	return r.Context().Err()
}

// write writes the headers, tells of it and gets the answer.
func (d *dialer) write(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).WroteHeaders()
	return d.written.RoundTrip(r)
}

func TestP2_TheCallersOwnTraceKeepsWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var mu sync.Mutex
		note := func(s string) { mu.Lock(); told = append(told, s); mu.Unlock() }
		r := get(t, home)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			GotConn:      func(httptrace.GotConnInfo) { note("connected") },
			WroteHeaders: func() { note("wrote") },
		}))
		require.NoError(t, send(t, newTransport(t, newDialer(always(ms)), onePerSecond), r))
		require.Equal(t, []string{"connected", "wrote"}, told)
	})
}

func TestHorizon(t *testing.T) {
	for _, c := range []struct {
		limit throttle.Limit
		want  time.Duration
	}{
		{throttle.PerSecond(20), 350 * ms},
		{throttle.PerSecond(3), 500 * ms},
		{throttle.PerSecond(1), 750 * ms},
		{throttle.SlidingWindow(1000, 3*time.Second), 750 * ms},
		{throttle.FixedWindow(20, time.Second), 350 * ms},
		{throttle.CalendarWindow(1000, throttle.Day, time.UTC), 750 * ms},
		{throttle.LeakyBucket(600, time.Minute), 350 * ms},
		{throttle.TokenBucket(2, time.Second, 100), 750 * ms},
		{throttle.Concurrency(8), 350 * ms},
		{throttle.Unlimited(), 350 * ms},
	} {
		require.Equal(t, c.want, c.limit.Horizon(), "%v", c.limit)
	}
}
