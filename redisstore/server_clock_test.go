package redisstore_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP9_TheServersClockIsReadInFull: a row begins with the time at which it was
// seen last. Every script reads it from the server, to the microsecond.
func TestP9_TheServersClockIsReadInFull(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s := redisstore.New(client, nil)
	simple, large := charge("simple", throttle.PerHour(1)), charge("window", throttle.FixedWindow(1, time.Hour))
	for _, c := range []struct {
		name   string
		charge throttle.Charge
		do     func(throttle.Charge)
	}{
		{"a booking, the short way", simple, func(c throttle.Charge) { book(t, s, c) }},
		{"a booking", large, func(c throttle.Charge) { book(t, s, c) }},
		{"a pause", simple, func(c throttle.Charge) { require.NoError(t, s.Pause(t.Context(), c, time.Hour)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			c.do(c.charge)
			after, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			head, err := client.GetRange(t.Context(), s.Key(c.charge.Budget), 0, 7).Bytes()
			require.NoError(t, err)
			seen := int64(math.Float64frombits(binary.LittleEndian.Uint64(head)))
			require.GreaterOrEqual(t, seen, before.UnixMicro())
			require.LessOrEqual(t, seen, after.UnixMicro())
		})
	}
}
