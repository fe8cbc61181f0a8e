package waits

import (
	"flag"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
)

var (
	long  = flag.Bool("long", false, "measure everything, for as long as it takes")
	judge = flag.Bool("judge", true, "fail if a target is missed")
	out   = flag.String("out", "", "write the table to this file")
)

func TestMain(m *testing.M) {
	beMember()
	os.Exit(redistest.Main(m))
}

// A scenario measures some rows.
type scenario struct {
	name string
	rows func(*testing.T) []row
}

// inMemory run on memstore, in virtual time.
var inMemory = []scenario{
	{"priority", behindLow},
	{"beside", besideHot},
	{"skewed", skewed},
	{"leave", leaving},
	{"left", allLeft},
	{"raise", raised},
	{"order", keptOrder},
	{"tokens", tokens},
	{"recovery", recovery},
	{"bans", bans},
	{"dials", slowDials},
	{"ends", endsOfBans},
	{"hiccup", hiccup},
	{"away", awayStore},
	{"open", openLoop},
	{"connections", connections},
	{"flight", inFlight},
	{"closed", closedLoop},
}

// onRedis run on real servers, in real time.
var onRedis = []scenario{
	{"Redis priority", redisBehindLow},
	{"Redis left", redisAllLeft},
	{"Redis hiccup", redisHiccup},
	{"Redis order", redisOrder},
	{"Redis flight", redisFlight},
	{"Redis closed", redisClosed},
	{"far", farRedis},
	{"rush", rush},
	{"crash loop", crashLoop},
	{"fleet", fleet},
	{"many", many},
}

// TestWaits measures all scenarios, with -short only those in virtual time. In real time,
// without -long, a figure that is missed says little about the engine, so none is judged.
func TestWaits(t *testing.T) {
	var all []row
	run := func(s scenario, judged bool, rows func(*testing.T) []row) {
		t.Run(s.name, func(t *testing.T) {
			measured := rows(t)
			t.Log("\n" + table(measured))
			all = append(all, measured...)
			for _, r := range measured {
				if judged && *judge && !r.ok && r.known == "" {
					t.Errorf("%s: %s, but %s is asked for", r.what, r.value, r.target)
				}
			}
		})
	}
	for _, s := range inMemory {
		run(s, true, func(t *testing.T) (rows []row) {
			synctest.Test(t, func(t *testing.T) { rows = s.rows(t) })
			return rows
		})
	}
	for _, s := range onRedis {
		run(s, *long, func(t *testing.T) []row {
			soak.Only(t)
			return s.rows(t)
		})
	}
	t.Log("\n" + table(all))
	if *out != "" {
		require.NoError(t, os.WriteFile(*out, []byte(table(all)), 0o644))
	}
}

// inFull returns the first of two if everything is measured, and otherwise the
// second.
func inFull[T any](full, small T) T {
	if *long {
		return full
	}
	return small
}
