package throttle_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP2_WhatIsStoppedAtTheLastLookCannotBeWritten: HTTP/1 hands a request to its
// connection before it looks at the context, so ending that is not enough.
func TestP2_WhatIsStoppedAtTheLastLookCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, late := newSpy(), false
		store.change = func(g *throttle.Grant) {
			if late {
				*g = throttle.Grant{Wait: time.Hour}
			}
		}
		tr := must(throttle.New(throttle.Config{
			Store: store, Policies: []throttle.Policy{onePerHour},
			Base: base(func(r *http.Request) (*http.Response, error) {
				late = true
				time.Sleep(time.Second) // dialling
				httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
				var wire bytes.Buffer
				require.Error(t, r.Write(&wire))
				require.Zero(t, wire.Len(), "not a byte")
				return nil, r.Context().Err()
			}),
		}))
		r := get(t, home)
		require.ErrorIs(t, send(t, tr, r), throttle.ErrLimited)
		require.Equal(t, home, r.URL.String(), "the caller's request is as it was")
	})
}

// TestP8_AStartIsGivenBackOnce: a booking in place of an earlier grant fails, so
// nobody knows whether that was given back. Doing it again could take another's.
func TestP8_AStartIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		store := newSpy()
		store.change = func(g *throttle.Grant) { g.Age = 12 * ms } // too old to be handed on
		broken := failSecond{store, cancel}
		tr := must(throttle.New(throttle.Config{
			Store: broken, Policies: []throttle.Policy{onePerHour}, Base: answer(200, ""),
		}))
		require.ErrorIs(t, send(t, tr, get(t, home).WithContext(ctx)), context.Canceled)
		require.Zero(t, store.cancelled())
	})
}

// failSecond ends the caller's context during every booking that gives back.
type failSecond struct {
	*spyStore
	cancel context.CancelFunc
}

func (s failSecond) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	if b.Instead == (throttle.Handle{}) {
		return s.spyStore.Book(ctx, b)
	}
	s.cancel()
	return throttle.Grant{}, ctx.Err()
}
