package main

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redissim"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func main() {
	// A process that was started as a node of a measured fleet does not return from here.
	crew.Main(role, memberMain)
	flags := flag.NewFlagSet("scale", flag.ExitOnError)
	measured := flags.Bool("measure", false, "compare with fleets of processes instead: for a quiet machine")
	fleets := flags.Uint("fleets", uint(len(compared())), "with -measure: compare only the first `n` fleets; each takes 25 s")
	distant := flags.Bool("far", false, "say what is used of a limit where Redis is far away instead")
	crowded := flags.Bool("waiting", false, "say what a start costs Redis for which a caller waits instead: for a quiet machine")
	roomy := flags.Bool("room", false, "say how long a start waits that has room, and what sixty pods with four providers cost instead")
	_ = flags.Parse(os.Args[1:]) // it exits
	redis.SetLogger(quiet{})

	if *crowded {
		asTest(func(t *testing.T) { report{t: t, out: os.Stdout}.waiting() })
		return
	}

	asTest(func(t *testing.T) { show(t, *measured, *fleets, *distant, *roomy) })
}

// show prints the tables of one flag: of distances if distant is set, of starts with room and of pods if roomy is set, or
// of the first fleets beside real processes if measured is set. Without a flag it prints the tables of simulated fleets.
func show(t *testing.T, measured bool, fleets uint, distant, roomy bool) {
	b, err := redissim.Connect(redistest.Single(t).Addr)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(b.Close)
	r := report{t: t, out: os.Stdout, b: b}

	if distant {
		r.far()
		return
	}

	if roomy {
		r.room()
		r.providers()
		return
	}

	r.costs()
	if measured {
		r.compare(compared()[:min(fleets, uint(len(compared())))])
		return
	}

	largest := r.nodes([]int{4, 16, 64, 250, 1000})
	r.sums()
	r.plain()
	r.fleet(largest, 1000, []int{3, 16, 64})
	r.failovers()
}

// quiet is a logger that says nothing: go-redis tells of each dial that fails.
type quiet struct{}

// Printf prints nothing.
func (quiet) Printf(context.Context, string, ...any) {}
