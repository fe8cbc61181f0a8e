package store_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

func ExampleWithSwitch() {
	policies := []throttle.Policy{{Name: "shop", Match: "shop.example.com/", Limit: throttle.PerMinute(1)}}

	off := new(store.Switch)
	transport, err := throttle.New(throttle.Config{Store: store.WithSwitch(memstore.New(), off), Policies: policies})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A feature flag, or an admin page, turns throttle off.
	off.TurnOff(store.Off{By: "flag", Reason: "checkout is slow"})
	limiter, err := transport.Limiter("shop")
	if err != nil {
		fmt.Println(err)
		return
	}

	for range 3 {
		if _, err := limiter.Acquire(context.Background(), "", 1); err != nil {
			fmt.Println(err)
		}
	}

	state, _ := off.State()
	fmt.Println(state, off.Passed())
	// Output: off by flag: "checkout is slow" 3
}

// TestWithSwitch_CostsNothing: a start from memory costs no allocation more with a switch that is on, because the wrapped store
// says that its methods return at once.
func TestWithSwitch_CostsNothing(t *testing.T) {
	s := store.WithSwitch(memstore.New(), new(store.Switch))
	require.Same(t, s, s.Traits().InMemory)

	allocations := func(s store.Store) float64 {
		l, err := throttle.NewLimiter(s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1_000_000)})
		require.NoError(t, err)
		return testing.AllocsPerRun(100, func() { _, _ = l.Acquire(context.Background(), "", 1) })
	}
	require.Equal(t, allocations(memstore.New()), allocations(s))
}

// TestSwitch: the context of those who wait ends when the switch is turned off, once for each time.
func TestSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s store.Switch
		first := s.WhileOn()
		require.NoError(t, first.Err())
		require.Equal(t, first, s.WhileOn())
		s.TurnOn() // which it is
		require.NoError(t, first.Err())

		// An end that has passed turns nothing off.
		s.TurnOff(store.Off{Until: time.Now()})
		require.NoError(t, first.Err())
		require.False(t, s.IsOff())

		s.TurnOff(store.Off{Until: time.Now().Add(time.Minute)})
		require.Error(t, first.Err())
		require.Error(t, s.WhileOn().Err())
		s.TurnOff(store.Off{By: "anna", Until: time.Now().Add(time.Hour)}) // for longer, with other words
		time.Sleep(time.Minute)
		state, off := s.State()
		require.True(t, off)
		require.Equal(t, "anna", state.By)

		// The end comes by itself.
		time.Sleep(time.Hour)
		require.False(t, s.IsOff())
		_, off = s.State()
		require.False(t, off)
		second := s.WhileOn()
		require.NoError(t, second.Err())

		s.TurnOff(store.Off{})
		require.Error(t, second.Err())
		time.Sleep(1000 * time.Hour)
		require.True(t, s.IsOff())
		s.TurnOn()
		require.False(t, s.IsOff())
		require.NoError(t, s.WhileOn().Err())
	})
}
