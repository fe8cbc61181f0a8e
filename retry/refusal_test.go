package retry_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/store"
)

// A brokenStore cannot be asked.
type brokenStore struct {
	throttle.Store
	err error
}

func (s brokenStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{}, s.err
}

var errDown = errors.New("down")

// refusals are the ways in which a throttle does not send a request.
var refusals = []struct {
	name   string
	store  func() throttle.Store
	policy throttle.Policy
	check  func(*testing.T, error)
}{
	{
		"a cost above the limit", memory,
		throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(1), Cost: func(*http.Request) int { return 2 }},
		func(t *testing.T, err error) {
			require.ErrorIs(t, err, throttle.ErrLimited)
			var limited *throttle.LimitError
			require.ErrorAs(t, err, &limited)
			require.Equal(t, "p", limited.Policy)
		},
	},
	{
		"a negative cost", memory,
		throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(1), Cost: func(*http.Request) int { return -1 }},
		func(t *testing.T, err error) {
			var config *throttle.ConfigError
			require.ErrorAs(t, err, &config)
		},
	},
	{
		"a store that is away", func() throttle.Store { return brokenStore{memstore.New(), errDown} },
		throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerHour(1)},
		func(t *testing.T, err error) {
			var store *throttle.StoreError
			require.ErrorAs(t, err, &store)
			require.ErrorIs(t, err, errDown)
		},
	},
}

func memory() throttle.Store { return memstore.New() }

// TestPitfall_RefusalsAreRetried: the default client asks five times and sleeps
// for 15 seconds; ours ends at once, with the error intact.
func TestPitfall_RefusalsAreRetried(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := newUpstream(answer(200, ""))
				tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: c.store(), Policies: []throttle.Policy{c.policy}, Base: up})
				require.NoError(t, err)

				plain := usual(tr)
				n, begin := asked(plain), time.Now()
				_, err = plain.Do(get(t))
				require.Error(t, err)
				require.Equal(t, 5, *n)
				require.Equal(t, 15*time.Second, time.Since(begin))

				ours := retry.NewClient(tr)
				n, begin = asked(ours), time.Now()
				resp, err := ours.Do(get(t))
				require.Nil(t, resp)
				c.check(t, err)
				require.Equal(t, 1, *n)
				require.Zero(t, time.Since(begin))

				resp, err = ours.StandardClient().Do(get(t).Request)
				require.Nil(t, resp)
				c.check(t, err)
				require.Equal(t, 2, *n)
				require.Zero(t, time.Since(begin))
				require.Empty(t, up.seen())
			})
		})
	}
}

// TestRefusalIsTheErrorOfHTTPClient: nothing is wrapped around it.
func TestRefusalIsTheErrorOfHTTPClient(t *testing.T) {
	tr := newTransport(t, answer(200, ""), throttle.Policy{
		Name: "p", Match: "/", Limit: throttle.PerHour(1), Cost: func(*http.Request) int { return 2 },
	})
	_, err := retry.NewClient(tr).Do(get(t))
	require.IsType(t, &url.Error{}, err)
	require.IsType(t, &throttle.LimitError{}, err.(*url.Error).Err)
	require.EqualError(t, err, `Get "http://api.example.com": throttle: policy "p" (1/h): a cost of 2 can never fit`)
}

// TestRefusedAfterAWait: a budget that is full for longer than the context
// allows ends the request at once, however often it may be repeated.
func TestRefusedAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(200, ""))
		client := retry.NewClient(newTransport(t, up, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerMinute(1)}))
		require.Equal(t, 200, status(t, client, get(t)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := client.Do(get(t).WithContext(ctx))
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Zero(t, time.Since(begin))
		require.Len(t, up.seen(), 1)
	})
}

// TestTheCallerLeavesDuringTheWait: its own error comes back, with its cause.
func TestTheCallerLeavesDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(answer(200, ""))
		client := retry.NewClient(newTransport(t, up, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerMinute(1)}))
		require.Equal(t, 200, status(t, client, get(t)))
		reason := errors.New("the job was called off")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(reason) })
		begin := time.Now()
		_, err := client.Do(get(t).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Len(t, up.seen(), 1)
	})
}
