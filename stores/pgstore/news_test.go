package pgstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/stores/pgstore"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP11_Messages: a node hears of each transaction that wakes it or everybody, and of no other, without that anybody looks: what is for another
// node does not reach its program. It hears again when its connection was lost.
func TestP11_Messages(t *testing.T) {
	server := newServer(t)
	r := newRelay(t, server)
	hears := pgstore.NewDatabase(t, r.url(t, server), pgstore.Options{})
	tells := pgstore.NewDatabase(t, server.URL(), pgstore.Options{})
	woken := make(chan struct{}, 1)
	stop, err := hears.(rowstore.Notifier).Listen("g", "me", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	require.NoError(t, err)
	defer stop()
	await := func() {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody is woken")
		}
	}
	told := 0
	tell := func(group string, nodes ...string) {
		if len(nodes) == 0 || slices.Contains(nodes, "me") {
			told++
		}
		require.NoError(t, tells.Transact(t.Context(), group, nil, func(tx rowstore.Tx) error {
			tx.(rowstore.Waker).Wake(nodes...)
			return nil
		}))
	}
	for range 2 {
		require.Eventually(t, func() bool { return pgstore.Hears(hears) }, time.Minute, time.Millisecond)
		await() // there may have been news before
		tell("g", "me", "you")
		await()
		tell("g")
		await()
		tell("g", "you")
		tell("other")
		require.Eventually(t, func() bool { return pgstore.Heard(hears) == told }, time.Minute, time.Millisecond)
		require.Empty(t, woken)
		r.cut()
		require.Eventually(t, func() bool { return !pgstore.Hears(hears) }, time.Minute, time.Millisecond)
	}
	await() // it looks itself now
	await()
}
