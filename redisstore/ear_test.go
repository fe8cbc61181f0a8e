package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP15_AnEarEndsOnce has the last sleeper leave at the moment when its ear is
// about to end, for many times: either may come first.
func TestP15_AnEarEndsOnce(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{}) // nothing is sent
	defer client.Close()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := redisstore.New(client, nil)
			s.Deafen()
			s.Prick("g")
			s.Rest("g")
			time.Sleep(100 * time.Millisecond)
			s.Prick("g")
			time.Sleep(400 * time.Millisecond)
			s.Rest("g")
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
			s.Prick("g")
			time.Sleep(time.Minute)
			require.Equal(t, 1, s.Ears())
			s.Rest("g")
			time.Sleep(time.Minute)
			require.Zero(t, s.Ears())
		})
	}
}
