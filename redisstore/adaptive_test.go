package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// learned has one of two programs told of a refusal, and returns both, the charge, and the
// start that was refused.
func learned(t *testing.T, client *redis.Client) (one, other *redisstore.Store, c throttle.Charge, refused throttle.Grant) {
	one, other = redisstore.New(client, nil), redisstore.New(client, nil)
	c = charge("adaptive", throttle.PerMinute(40))
	c.Adaptive = true
	for range 24 {
		g, err := one.Book(t.Context(), booking(c))
		require.NoError(t, err)
		require.True(t, g.OK)
		refused = g
	}
	from, to, err := one.Refuse(t.Context(), c, throttle.Refusal{Start: refused})
	require.NoError(t, err)
	require.Equal(t, []float64{40, 21}, []float64{from, to})
	return one, other, c, refused
}

// TestAdaptive_TheFleetShares: what one program learns, all obey, and a call that is made
// again teaches nothing new.
func TestAdaptive_TheFleetShares(t *testing.T) {
	_, other, c, refused := learned(t, redistest.Shared(t).Client(t))
	st, err := other.Status(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 21, int(st.Ceiling))
	require.Positive(t, st.Wait)
	k := booking(c)
	k.MaxWait = 0
	g, err := other.Book(t.Context(), k)
	require.NoError(t, err)
	require.False(t, g.OK)
	from, to, err := other.Refuse(t.Context(), c, throttle.Refusal{Start: refused})
	require.NoError(t, err)
	require.Equal(t, from, to)

	firm := c
	firm.Adaptive = false
	k = booking(firm)
	k.MaxWait = 0
	g, err = other.Book(t.Context(), k)
	require.NoError(t, err)
	require.True(t, g.OK)
}

// TestAdaptive_KeysOutliveWhatTheyHold: a row is kept until its ceiling means nothing.
func TestAdaptive_KeysOutliveWhatTheyHold(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	one, _, c, _ := learned(t, client)
	left, err := client.PTTL(t.Context(), one.Key(c.Budget)).Result()
	require.NoError(t, err)
	require.InDelta(t, 4*13*time.Minute, left, float64(time.Minute))
}
