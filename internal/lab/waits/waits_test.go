package waits

import (
	"context"
	"flag"
	"os"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

var (
	long  = flag.Bool("long", false, "measure everything, for as long as it takes")
	judge = flag.Bool("judge", true, "fail if a target is missed")
	out   = flag.String("out", "", "write the table to this file")
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	crew.Main("waits", work)
	os.Exit(redistest.Main(m))
}

// quiet logs nothing: nodes die.
type quiet struct{}

// Printf implements redis' interface of loggers.
func (quiet) Printf(context.Context, string, ...any) {}

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
	{"shares", shares},
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
	{"costs", openCosts},
	{"connections", connections},
	{"flight", inFlight},
	{"closed", closedLoop},
}

// A simulation measures some rows with a server in virtual time.
type simulation struct {
	name string
	rows func(*testing.T, virtual) []row
}

// simulated run on Redis in virtual time.
var simulated = []simulation{
	{"fleets", orderOfFleets},
	{"slow starts", slowStarts},
	{"resumed", resumedBurst},
	{"crashes", crashes},
	{"costs on Redis", openCostsRedis},
	{"flight on Redis", flightRedis},
	{"banning", banningUpstream},
	{"tokens on Redis", tokensRedis},
	{"distant", farAway},
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
	soak.WithoutRace(t)
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
	backend := must(redissim.Connect(redistest.Single(t).Addr))
	defer backend.Close()
	for _, s := range simulated {
		run(scenario{name: s.name}, true, func(t *testing.T) []row { return s.rows(t, virtual{backend}) })
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
