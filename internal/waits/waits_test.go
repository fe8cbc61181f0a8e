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
	long bool // it takes long with the race detector
}

// inMemory run on memstore, in virtual time.
var inMemory = []scenario{
	{name: "priority", rows: behindLow},
	{name: "beside", rows: besideHot},
	{name: "skewed", rows: skewed, long: true},
	{name: "leave", rows: leaving, long: true},
	{name: "left", rows: allLeft},
	{name: "raise", rows: raised},
	{name: "order", rows: keptOrder},
	{name: "tokens", rows: tokens},
	{name: "recovery", rows: recovery},
	{name: "bans", rows: bans},
	{name: "dials", rows: slowDials},
	{name: "ends", rows: endsOfBans},
	{name: "hiccup", rows: hiccup},
	{name: "open", rows: openLoop, long: true},
	{name: "connections", rows: connections},
	{name: "flight", rows: inFlight},
	{name: "closed", rows: closedLoop},
}

// onRedis run on real servers, in real time.
var onRedis = []scenario{
	{name: "Redis priority", rows: redisBehindLow},
	{name: "Redis left", rows: redisAllLeft},
	{name: "Redis hiccup", rows: redisHiccup},
	{name: "Redis order", rows: redisOrder},
	{name: "Redis flight", rows: redisFlight},
	{name: "Redis closed", rows: redisClosed},
	{name: "far", rows: farRedis},
	{name: "rush", rows: rush},
	{name: "crash loop", rows: crashLoop},
	{name: "fleet", rows: fleet},
	{name: "many", rows: many},
}

// TestWaits measures all scenarios, and with -short those in virtual time. In real time,
// without -long, a figure that is missed says little about the engine, so none is judged.
func TestWaits(t *testing.T) {
	var all []row
	run := func(s scenario, judged bool, rows func(*testing.T) []row) {
		t.Run(s.name, func(t *testing.T) {
			measured := rows(t)
			t.Log("\n" + table(measured))
			all = append(all, measured...)
			for _, r := range measured {
				if judged && *judge && !r.ok {
					t.Errorf("%s: %s, but %s is asked for", r.what, r.value, r.target)
				}
			}
		})
	}
	for _, s := range inMemory {
		if s.long && testing.Short() {
			continue
		}
		run(s, true, func(t *testing.T) (rows []row) {
			synctest.Test(t, func(t *testing.T) { rows = s.rows(t) })
			return rows
		})
	}
	for _, s := range onRedis[:soak.Most(len(onRedis), 0)] {
		run(s, *long, s.rows)
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
