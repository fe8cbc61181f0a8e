package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// farRedis has a server that is far away.
func farRedis(t *testing.T) (rows []row) {
	for _, c := range []struct {
		away  time.Duration
		least float64
	}{{40 * ms, usedNear40}, {150 * ms, usedFar}} {
		w := redistest.NewWire(t, redistest.Single(t).Addr)
		w.Delay(c.away/2, c.away/2)
		l := newLimiter(redisstore.New(newClient(t, w.Addr, 64), redisstore.Options{}), perSecond(40).Limit)
		must(l.Status(t.Context(), "")) // it is connected
		s, end := newStage(t), inFull[time.Duration](20, 3)*time.Second
		starts := spends(join(s.loop(32, end, s.limiter(l))...))
		rows = append(rows, ofQuota(fmt.Sprintf("Redis %v away, 40/s, 32 callers", c.away), starts, end, lineOf(40), c.least))
		if !*long {
			break
		}
	}
	return rows
}
