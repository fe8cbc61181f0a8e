package throttle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP2_WhatTheStoreHoldsUpIsTakenAnew: a store that takes long to confirm starts
// would let all its waiters go at once. That holds also for policies without
// Jitter, whose requests may be late by themselves.
func TestP2_WhatTheStoreHoldsUpIsTakenAnew(t *testing.T) {
	for _, c := range []struct {
		name     string
		takes    time.Duration
		bookings int
	}{
		{"in time", throttle.DefaultJitter, 1 + 2}, // the second stands in line
		{"held up", throttle.DefaultJitter + 1, 1 + 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newWatchSpy(), newStarts()
				store.confirm = func(context.Context) (bool, error) {
					time.Sleep(c.takes)
					return true, nil
				}
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{
					{Name: "p", Limit: throttle.LeakyBucket(1, time.Second), Jitter: -1},
				}}))
				line(t, tr, 2, home)
				require.Len(t, store.booked(), c.bookings)
			})
		})
	}
}
