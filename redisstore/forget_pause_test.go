package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP12_AForgottenPenalty closes a budget, lets the server forget it, and books:
// by the program that stored the penalty, by one that was held by it, and by one
// that knows nothing, after one that does.
func TestP12_AForgottenPenalty(t *testing.T) {
	t.Parallel()
	for _, limit := range append(remembered[:len(remembered):len(remembered)], throttle.Unlimited()) {
		for name, later := range map[string]time.Duration{"at once": 0, "later": 20 * time.Second} {
			t.Run(limit.String()+" "+name, func(t *testing.T) {
				forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
					stored, held, strange := redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
					c := charge("budget", limit)
					require.NoError(t, stored.Pause(t.Context(), c, time.Minute))
					for _, knows := range []*redisstore.Store{stored, held} {
						g, err := knows.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: time.Second})
						require.NoError(t, err)
						require.False(t, g.OK)
						time.Sleep(later)
						forget()
						left := time.Minute - later
						if knows == held {
							left -= later
						}
						require.GreaterOrEqual(t, bookLost(t, knows, c), left)
						require.GreaterOrEqual(t, book(t, strange, c), left-telling, "who knows nothing, a little later")
					}
				})
			})
		}
	}
}

// TestP12_AForgottenPenaltyThatWasLifted stays lifted, and a row that is there is
// not closed by who has not heard of that.
func TestP12_AForgottenPenaltyThatWasLifted(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		operator, held := redisstore.NewAt(client, nil, bubbleClock), redisstore.NewAt(client, nil, bubbleClock)
		c := charge("budget", throttle.PerMinute(5))
		require.NoError(t, operator.Pause(t.Context(), c, time.Minute))
		g, err := held.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: time.Second})
		require.NoError(t, err)
		require.False(t, g.OK)
		require.NoError(t, operator.Resume(t.Context(), c))
		require.Zero(t, book(t, held, c), "the row is there")
		require.Zero(t, book(t, operator, c))
		forget()
		require.LessOrEqual(t, bookLost(t, operator, c), telling, "who lifted it knows of none")
	})
}
