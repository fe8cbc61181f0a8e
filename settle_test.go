package throttle_test

import (
	"context"
	"encoding/json"
	"errors"

	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP6_SettleThatMayHaveFailed: nobody knows what is booked, so the next
// settlement takes the lesser cost for booked: nothing of another's is given back.
func TestP6_SettleThatMayHaveFailed(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		name               string
		lost, again, asked int // the settlements, and how many the store hears of
		takenBack          int // by the second
	}{
		{"more, then less", 8, 2, 2, 4},
		{"more, then the same", 8, 8, 2, 4},
		{"less, then more", 1, 3, 2, 1},
		{"less, then the same", 1, 1, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newSpy()
			took := &settleStore{spyStore: store}
			p, err := newLimiter(t, took, throttle.Policy{Name: "p", Limit: throttle.PerHour(10)}).Acquire(t.Context(), "", 4)
			require.NoError(t, err)
			store.settle = func(context.Context) error { return down }
			err = p.Settle(t.Context(), c.lost)
			require.ErrorIs(t, err, down)
			var failed *throttle.StoreError
			require.ErrorAs(t, err, &failed)
			store.settle, took.old = nil, 0
			require.NoError(t, p.Settle(t.Context(), c.again))
			require.Len(t, store.settlements(), c.asked)
			require.Equal(t, c.takenBack, took.old)
		})
	}
}

// A settleStore notes the cost in whose place another one is put.
type settleStore struct {
	*spyStore
	old int
}

func (s *settleStore) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	s.old = b.Charges[0].Cost
	return s.spyStore.Settle(ctx, b, g, costs)
}

// tokens reads the usage that a model's answer ends with.
func tokens(resp *http.Response) int {
	body, err := throttle.PeekBody(resp, 1<<20)
	usage := struct{ Tokens *int }{}
	if err != nil || json.Unmarshal(body, &usage) != nil || usage.Tokens == nil {
		return -1
	}
	return *usage.Tokens
}
