package throttle_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A cloning base sends a copy, as one does that adds a header.
type cloning struct{ http.RoundTripper }

func (c cloning) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.RoundTripper.RoundTrip(r.Clone(r.Context()))
}

// TestP11_APenaltyStopsAClone bans the fleet while a connection is dialled. What the
// caller is told was not sent does not arrive, though its copy has a URL of its own.
func TestP11_APenaltyStopsAClone(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for range 20 {
			var arrived atomic.Int32
			upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
			if secure {
				upstream.StartTLS()
			} else {
				upstream.Start()
			}
			base := upstream.Client().Transport.(*http.Transport).Clone()
			tr := must(throttle.New(throttle.Config{
				Store: memstore.New(), Base: cloning{base}, Policies: []throttle.Policy{onePerSecond},
			}))
			l, err := tr.Limiter(onePerSecond.Name)
			require.NoError(t, err)
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if err := l.Pause(ctx, "", time.Hour); err != nil {
					return nil, err
				}
				time.Sleep(40 * ms) // too long for the grant
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, upstream.URL, strings.NewReader("pay 100"))
			require.NoError(t, err)
			_, err = tr.RoundTrip(r)
			require.True(t, errors.Is(err, throttle.ErrLimited), err)
			base.CloseIdleConnections()
			upstream.Close() // when all that arrived was answered
			require.Zero(t, arrived.Load())
			cancel()
		}
	}
}
