package throttle_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestObserveDoesNotAllocate: a request that is not held costs an observer no memory.
func TestObserveDoesNotAllocate(t *testing.T) {
	resp := &http.Response{StatusCode: 200, Body: http.NoBody}
	allocs := func(observe func(context.Context, throttle.Event)) float64 {
		tr := must(throttle.New(throttle.Config{
			Store: memstore.New(), Observe: observe, MaxWait: -1,
			Base:     base(func(*http.Request) (*http.Response, error) { return resp, nil }),
			Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(1 << 30)}},
		}))
		req := get(t, home)
		return testing.AllocsPerRun(1000, func() {
			if _, err := tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		})
	}
	require.Equal(t, allocs(nil), allocs(func(context.Context, throttle.Event) {}))
}

// TestObservedLimitersDoNotAllocate more than others.
func TestObservedLimitersDoNotAllocate(t *testing.T) {
	l := must(must(throttle.NewLimiters(throttle.Config{
		Store: memstore.New(), Observe: func(context.Context, throttle.Event) {},
		Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(1 << 30)}},
	})).Limiter("p"))
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p, err := l.Acquire(ctx, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}))
}
