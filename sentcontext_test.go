package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP13_TheBaseSeesTheCallersContext: its values, its deadline and its end, with
// the cause; and so does code that derives a context from it.
func TestP13_TheBaseSeesTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		reason := errors.New("called off")
		root, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		ctx, stop := context.WithTimeout(root, time.Hour)
		defer stop()
		end := time.Now().Add(time.Hour)
		tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
			seen := r.Context()
			before := inBubble()
			derived, stop := context.WithCancel(seen)
			defer stop()
			require.LessOrEqual(t, inBubble(), before, "the standard library knows it as one of its own")
			for _, c := range []context.Context{seen, derived} {
				require.Equal(t, "value", c.Value(key{}))
				deadline, ok := c.Deadline()
				require.True(t, ok)
				require.Equal(t, end, deadline)
				require.NoError(t, c.Err())
			}
			cancel(reason)
			for _, c := range []context.Context{seen, derived} {
				<-c.Done()
				require.ErrorIs(t, c.Err(), context.Canceled)
				require.Equal(t, reason, context.Cause(c))
			}
			return nil, seen.Err()
		}), onePerHour)
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), context.Canceled)
	})
}

// TestP13_TheCallersHooksAreCalled: those of its own trace, on the way to the connection
// and on it.
func TestP13_TheCallersHooksAreCalled(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	var mu sync.Mutex
	called := make(map[string]int)
	hook := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		called[name]++
	}
	tr := newTransport(t, upstream.Client().Transport, onePerHour)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		ConnectStart: func(string, string) { hook("ConnectStart") },
		GotConn:      func(httptrace.GotConnInfo) { hook("GotConn") },
		WroteHeaders: func() { hook("WroteHeaders") },
		WroteRequest: func(httptrace.WroteRequestInfo) { hook("WroteRequest") },
	})
	resp, err := tr.RoundTrip(get(t, upstream.URL).WithContext(ctx))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{"ConnectStart": 1, "GotConn": 1, "WroteHeaders": 1, "WroteRequest": 1}, called)
}

// TestP15_AContextThatIsLookedAtLate: after the answer is over, and by many at once.
func TestP15_AContextThatIsLookedAtLate(t *testing.T) {
	var kept context.Context
	tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
		kept = r.Context()
		return answer(200, "some")(r)
	}), throttle.Policy{Name: "p", Limit: throttle.PerHour(100)})
	resp, err := tr.RoundTrip(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			<-kept.Done()
			if !errors.Is(kept.Err(), context.Canceled) {
				t.Error(kept.Err())
			}
		})
	}
	all.Wait()
}

// A slowContext has ended, and has not yet told those that were made of it.
type slowContext struct {
	context.Context
	ended bool
}

func (c *slowContext) Done() <-chan struct{} { return nil }

func (c *slowContext) Err() error {
	if c.ended {
		return context.DeadlineExceeded
	}
	return nil
}

// TestP13_TheEndIsTheCallersOwn: a request whose deadline passes fails with that,
// also if what it has in flight ends before its context is told.
func TestP13_TheEndIsTheCallersOwn(t *testing.T) {
	for _, c := range []struct {
		name         string
		asked, ended bool
		want         error
	}{
		{"the caller's context has ended", false, true, context.DeadlineExceeded},
		{"it has not", false, false, context.Canceled},
		{"it has ended and not told yet", true, true, nil}, // it has the word
		{"it has not, and the base waits for it", true, false, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := &slowContext{Context: t.Context()}
			var sent context.Context
			tr := newTransport(t, base(func(r *http.Request) (*http.Response, error) {
				if sent = r.Context(); c.asked {
					require.NotNil(t, sent.Done())
				}
				return answer(200, "some")(r)
			}), onePerHour)
			resp, err := tr.RoundTrip(get(t, home).WithContext(parent))
			require.NoError(t, err)
			parent.ended = c.ended
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, sent.Err())
		})
	}
}
