package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP11_TheStoreIsToldForAsLongAsItMatters has a store that is away when an
// answer carries a penalty. The caller gets the answer after a second, or when its
// MaxWait has been over for a moment; the store is told for as long as the penalty
// lasts, but not for ever.
func TestP11_TheStoreIsToldForAsLongAsItMatters(t *testing.T) {
	for _, c := range []struct {
		name      string
		lasts     string
		maxWait   time.Duration
		back      time.Duration // when the store is there again
		want, got time.Duration // how long it was told; when the caller got the answer
	}{
		{"soon back", "60", 0, 300 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
		{"back later", "60", 0, 10 * time.Second, 10 * time.Second, time.Second},
		{"back when it is over", "5", 0, time.Hour, 5 * time.Second, time.Second},
		{"back much later", "600", 0, time.Hour, 30 * time.Second, time.Second},
		{"a long MaxWait", "60", time.Minute, 10 * time.Second, 10 * time.Second, time.Second},
		{"half a second", "60", 500 * time.Millisecond, 10 * time.Second, 10 * time.Second, 500 * time.Millisecond},
		{"never waits", "60", -1, 10 * time.Second, 10 * time.Second, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, began, told := newSpy(), time.Now(), make(chan time.Duration, 1)
				store.pause = func(ctx context.Context) (err error) {
					select {
					case <-time.After(c.back):
					case <-ctx.Done():
						err = ctx.Err()
					}
					told <- time.Since(began)
					return err
				}
				tr := must(throttle.New(throttle.Config{Store: store, Base: answer(429, "", "Retry-After", c.lasts), MaxWait: c.maxWait,
					Policies: []throttle.Policy{onePerHour}}))
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, c.got, time.Since(began))
				require.Equal(t, c.want, <-told)
			})
		})
	}
}

// A refusalStore notes refusals, each of which takes it some time.
type refusalStore struct {
	throttle.Store
	told chan throttle.Refusal
}

func (s *refusalStore) Refuse(_ context.Context, _ throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	r.Start = throttle.Grant{}
	s.told <- r
	time.Sleep(3 * time.Second)
	return 0, 0, nil
}

// TestP11_OnePenaltyAfterTheOther: where an answer closes two budgets, the store is told of the
// second one after the first. That ends as early all the same, and its answer took no longer.
func TestP11_OnePenaltyAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusalStore{Store: memstore.New(), told: make(chan throttle.Refusal, 2)}
		no := answer(429, "", "Retry-After", "60")
		slow := base(func(r *http.Request) (*http.Response, error) {
			time.Sleep(200 * ms)
			return no.RoundTrip(r)
		})
		other := onePerHour
		other.Name = "other"
		tr := must(throttle.New(throttle.Config{Store: store, Base: slow, Policies: []throttle.Policy{onePerHour, other}}))
		require.NoError(t, send(t, tr, get(t, home)))
		const took = 200 * ms
		require.Equal(t, throttle.Refusal{Length: time.Minute, Ago: took, Took: took}, <-store.told)
		require.Equal(t, throttle.Refusal{Length: 57 * time.Second, Ago: took + 3*time.Second, Took: took}, <-store.told)
		time.Sleep(10 * time.Second) // until the store has it
	})
}

// quotaStore notes what the store is told is left.
type quotaStore struct {
	throttle.Store
	told []throttle.Quota
	err  error
}

func (s *quotaStore) Reconcile(_ context.Context, _ throttle.Charge, q throttle.Quota) error {
	s.told = append(s.told, q)
	return s.err
}

// TestP11_WhatIsLeftIsTold passes on what answers say is left.
func TestP11_WhatIsLeftIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		says throttle.Quota
		ok   bool
		want []throttle.Quota
	}{
		{"some", throttle.Quota{Left: 3, Reset: time.Minute}, true, []throttle.Quota{{Left: 3, Reset: time.Minute}}},
		{"nothing", throttle.Quota{Reset: time.Minute}, true, []throttle.Quota{{Reset: time.Minute}}},
		{"less than nothing", throttle.Quota{Left: -7, Reset: time.Minute}, true, []throttle.Quota{{Reset: time.Minute}}},
		{"for a century", throttle.Quota{Left: 3, Reset: 876_000 * time.Hour}, true, []throttle.Quota{{Left: 3, Reset: throttle.MaxPenalty}}},
		{"for no time", throttle.Quota{Left: 3}, true, nil},
		{"of another budget", throttle.Quota{Left: 3, Reset: time.Minute}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &quotaStore{Store: memstore.New()}
			p := throttle.Policy{Name: "p", Limit: throttle.PerHour(100),
				Quota: func(*http.Response) (throttle.Quota, bool) { return c.says, c.ok }}
			tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{p}}))
			require.NoError(t, send(t, tr, get(t, home)))
			require.Equal(t, c.want, store.told)
		})
	}
}

// TestP11_AQuotaThatCannotBeToldIsReported never fails the request.
func TestP11_AQuotaThatCannotBeToldIsReported(t *testing.T) {
	store, seen := &quotaStore{Store: memstore.New(), err: errors.New("away")}, &events{}
	p := throttle.Policy{Name: "p", Limit: throttle.PerHour(100),
		Quota: func(*http.Response) (throttle.Quota, bool) {
			return throttle.Quota{Left: 3, Reset: time.Minute}, true
		}}
	tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Observe: seen.observe, Policies: []throttle.Policy{p}}))
	require.NoError(t, send(t, tr, get(t, home)))
	require.Equal(t, []throttle.EventKind{throttle.Started, throttle.StoreFailed}, seen.kinds())
	require.ErrorContains(t, seen.first(t, throttle.StoreFailed).Err, "away")
}
