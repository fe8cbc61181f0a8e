package memstore_test

import (
	"fmt"
	"testing"

	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/storetest"
)

// TestP5_Shares: the shares of callers get their parts.
func TestP5_Shares(t *testing.T) {
	soak.WithoutRace(t)
	storetest.Shares(t, storetest.Slack{}, newStore, nil)
}

// TestP5_RandomShares is TestP5_Shares for random scenes.
func TestP5_RandomShares(t *testing.T) {
	soak.WithoutRace(t)
	for seed := range uint64(soak.Most(60, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { storetest.RandomShares(t, storetest.Slack{}, newStore, seed) })
	}
}

// TestP5_ManyShares: no number of shares makes one of them starve.
func TestP5_ManyShares(t *testing.T) {
	soak.WithoutRace(t)
	storetest.ManyShares(t, newStore, 0.1, 300, 10, 300, false)
	storetest.ManyShares(t, newStore, 0.1, 300, 10, 300, true)
	storetest.ManyShares(t, newStore, 0.1, 1000, 3, 1000, false)
}
