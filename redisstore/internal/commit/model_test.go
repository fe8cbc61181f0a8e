package commit

import (
	"flag"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// modelTime is for how long the model is explored in the larger bounds of
// docs/model.md.
var modelTime = flag.Duration("model", 0, "explore the model for so long, in larger bounds")

// TestModel explores what can happen between some nodes and a real server; see
// docs/model.md.
func TestModel(t *testing.T) {
	server := redistest.Shared(t)
	padded := wire.BookScript
	wire.BookScript = modelUnpadded(t)
	defer func() { wire.BookScript = padded }()
	var all modelTally
	scopes, end := modelScopes(*modelTime > 0), time.Now().Add(*modelTime)
	for i, s := range scopes {
		if i%soak.Most(1, 4) > 0 {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			var over atomic.Bool
			if *modelTime > 0 {
				share := time.AfterFunc(time.Until(end)/time.Duration(len(scopes)-i), func() { over.Store(true) })
				defer share.Stop()
			}
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, server.Client(t), s, over.Load)
				m.run()
				t.Logf("%s: %v", s.name, m.numbers)
				all.add(m.numbers)
				require.NoError(t, m.broken, "after\n\t%s", strings.Join(m.story, "\n\t"))
			})
		})
	}
	t.Logf("all: %v", all)
}
