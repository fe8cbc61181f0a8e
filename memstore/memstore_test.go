package memstore_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

func newStore(*testing.T) store.Store { return memstore.New() }

func TestContract(t *testing.T) { storetest.Run(t, newStore) }

// charge returns a charge of 1 without jitter to a budget of that name.
func charge(name string, l store.Limit) store.Charge {
	key := sha256.Sum256([]byte(name))
	return store.Charge{Budget: store.Budget{Policy: name, Group: "group", Key: [16]byte(key[:])}, Limit: l, Cost: 1}
}

// booking is patient.
func booking(charges ...store.Charge) *store.Booking {
	return &store.Booking{Charges: slices.Clone(charges), MaxWait: -1}
}

// inBubble runs a test in virtual time with a new store.
func inBubble(t *testing.T, test func(t *testing.T, s *memstore.Store)) {
	synctest.Test(t, func(t *testing.T) { test(t, memstore.New()) })
}

// ask books, and returns what it was told.
func ask(t *testing.T, s store.Store, k *store.Booking) store.Grant {
	t.Helper()
	g, err := s.Book(t.Context(), k)
	require.NoError(t, err)
	return g
}

// status returns how a budget stands.
func status(t *testing.T, s store.Store, c store.Charge) store.Status {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	return st
}

// book books, however long the wait, and returns the wait.
func book(t *testing.T, s store.Store, charges ...store.Charge) time.Duration {
	t.Helper()
	g := ask(t, s, booking(charges...))
	require.True(t, g.OK)
	return g.Wait
}

// TestP5_LineAgainstThePerfectQueue compares twenty thousand more visits with the perfect
// queue. When all are gone nothing is kept.
func TestP5_LineAgainstThePerfectQueue(t *testing.T) {
	for seed := range uint64(soak.Seeds(150, 40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RandomLine(t, storetest.Slack{}, forgetful, 1000+seed, 150)
		})
	}
}

// forgetful is a new store that has forgotten all when the test is over.
func forgetful(t *testing.T) store.Store {
	s := memstore.New()
	t.Cleanup(func() {
		other := charge("sweeps the shard", store.PerSecond(1))
		other.Budget.Key = [16]byte{'l'} // as those of RandomLine begin
		for range 3 {
			time.Sleep(time.Minute)
			ask(t, s, booking(other))
		}
		kept, _ := s.Rows()
		require.Equal(t, 1, kept)
	})
	return s
}

// refuse closes a budget for a minute, because a request was refused just now.
func refuse(t *testing.T, s *memstore.Store, c store.Charge) {
	_, _, err := s.Refuse(t.Context(), c, store.Refusal{Length: time.Minute, Ago: time.Millisecond})
	require.NoError(t, err)
}

// TestP11_ABanOutlivesItsWindow: rows are tidied up by others of their shard, and a ban that
// may be met again is not forgotten so.
func TestP11_ABanOutlivesItsWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := store.Charge{Limit: store.PerSecond(9), Cost: 1}
		refuse(t, s, c)
		time.Sleep(79 * time.Second)
		for i := range 1000 {
			other := store.Charge{Limit: store.PerSecond(9), Cost: 1}
			copy(other.Budget.Key[8:], fmt.Sprint("o ", i)) // the same shard
			ask(t, s, &store.Booking{Charges: []store.Charge{other}})
		}
		refuse(t, s, c)
		st := status(t, s, c)
		require.Equal(t, 2*time.Minute, st.Paused)
		require.Equal(t, 1, st.Repeated)
	})
}

// TestP1_AgainstTheDefinition compares fifty thousand more operations with
// the definition.
func TestP1_AgainstTheDefinition(t *testing.T) {
	for seed := range uint64(soak.Seeds(25, 5)) {
		storetest.Random(t, newStore, 1000+seed, 2000)
	}
}

// TestP1_OddWindows compares random operations on windows that divide no second with the
// definition: 200,000, in make soak.
func TestP1_OddWindows(t *testing.T) {
	soak.WithoutRace(t)
	for seed := range uint64(soak.Seeds(400, 40)) {
		storetest.RandomWindows(t, newStore, 1000+seed, 500)
	}
}

// TestP11_NoBanEndsEarly closes a budget at any nanosecond. No start is earlier than so long after that, for a caller that
// comes at any nanosecond around the end.
func TestP11_NoBanEndsEarly(t *testing.T) {
	for seed := range uint64(300) {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			rng := rand.New(rand.NewPCG(seed, 11))
			c := charge("banned", store.PerSecond(1000))
			time.Sleep(time.Duration(rng.IntN(10_000)))
			length := time.Millisecond + time.Duration(rng.IntN(10_000))
			end := time.Now().Add(length)
			if seed%2 == 0 {
				require.NoError(t, s.Pause(t.Context(), c, length))
			} else {
				_, _, err := s.Refuse(t.Context(), c, store.Refusal{Length: length, Ago: time.Nanosecond})
				require.NoError(t, err)
			}

			time.Sleep(length - time.Duration(rng.IntN(3000)))
			start := time.Now().Add(book(t, s, c))
			require.False(t, start.Before(end), "seed %d: %v early", seed, end.Sub(start))
		})
	}
}

// TestP7_ForgetsWhoLeftTheLineForSlots: a busy budget remembers no caller that has left its line for slots, or has got its slots another way.
func TestP7_ForgetsWhoLeftTheLineForSlots(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("slots", store.Concurrency(1))
		b := booking(c)
		held := ask(t, s, b)
		require.True(t, held.OK)

		// Callers that wait leave again.
		for range 100 {
			g := ask(t, s, b)
			require.NotNil(t, g.Ready)
			s.Cancel(b, g)
		}
		require.Zero(t, s.SlotWaiters(c.Budget))

		// A caller keeps its place when it asks again, and hears of its turn.
		g := ask(t, s, b)
		again := booking(c)
		again.Instead, again.Turn, again.Returns = g.Handle, g.Turn, true
		g = ask(t, s, again)
		require.NotNil(t, g.Ready)
		require.Equal(t, 1, s.SlotWaiters(c.Budget))
		s.Release(b, held)
		<-g.Ready
		require.Zero(t, s.SlotWaiters(c.Budget))

		// A caller that waits asks for a different budget in place of it.
		again.Instead, again.Turn = g.Handle, g.Turn
		held = ask(t, s, again)
		require.True(t, held.OK)
		g = ask(t, s, b)
		other := booking(charge("other", store.Concurrency(1)), c)
		other.Charges[1].Shadow = true
		other.Instead, other.Turn, other.Returns = g.Handle, g.Turn, true
		require.True(t, ask(t, s, other).OK)
		require.Zero(t, s.SlotWaiters(c.Budget))
	})
}
