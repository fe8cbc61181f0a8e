package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/bench"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

func main() {
	crew.Main(memberRole, memberMain)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit code: 0, 1 if a promise was broken, or 2 if nothing was judged.
func run(args []string, out, errs io.Writer) int {
	p := program{say: errs}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&p.long, "long", false, "play all faults; five minutes a round")
	flags.IntVar(&p.rounds, "rounds", 2, "how often -long plays them, each time but the first in random order")
	flags.StringVar(&p.only, "fault", "", "play only the faults of these `names`, separated by commas")
	flags.StringVar(&p.outage, "outage", "wait", "what the fleet does while Redis is away: wait, split or failopen")
	flags.Uint64Var(&p.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "for the random times")
	list := flags.Bool("list", false, "list the faults")
	if err := flags.Parse(args); err != nil {
		return 2
	}

	if *list {
		for _, f := range faults() {
			fmt.Fprintf(out, "%-14s %-22s %s\n", f.name, f.place, f.what)
		}
		return 0
	}

	accounts, broken, err := p.play()
	if err != nil {
		fmt.Fprintln(errs, err)
		return 2
	}

	p.report(out, accounts, broken)
	if len(broken) > 0 {
		return 1
	}

	return 0
}

// A program is one run: its flags, and where it tells its progress.
type program struct {
	say    io.Writer // progress
	long   bool
	rounds int
	only   string
	outage string
	seed   uint64
}

// play plays the faults that the flags choose, each round of them with new servers, and returns the account of each scene
// and the promises that were broken. It returns an error if a flag names nothing, or if a fleet could not be played.
func (p *program) play() (accounts []*account, broken []string, err error) {
	// Find a wrong flag before servers are started.
	if _, err := outageOf(p.outage); err != nil {
		return nil, nil, err
	}

	acts, err := p.acts()
	if err != nil {
		return nil, nil, err
	}

	fmt.Fprintf(p.say, "seed %d\n", p.seed)
	how := script{say: p.say, mode: p.outage, short: !p.long && p.only == "", random: rand.New(rand.NewPCG(p.seed, 12))}
	rounds := 1
	if p.long {
		rounds = p.rounds
	}

	for round := range rounds {
		for _, act := range acts {
			// The first round is in the order of the list, so that runs can be compared.
			if round > 0 {
				how.random.Shuffle(len(act), func(i, j int) { act[i], act[j] = act[j], act[i] })
			}

			err := bench.Run("", func(b *bench.Bench) {
				seen, wrong := show(b, how, act[0].place, act)
				accounts, broken = append(accounts, seen...), append(broken, wrong...)
			})
			if err != nil {
				return nil, nil, err
			}
		}
	}

	return accounts, broken, nil
}

// acts groups the chosen faults by the fleet that meets them. All faults of a single server share one fleet, and each other
// fault has a fleet of its own, because a sentinel's servers and a cluster are different after a fault.
func (p *program) acts() (acts [][]*fault, err error) {
	chosen, err := p.chosen()
	single := -1 // the index of the act of the single server, once there is one
	for _, f := range chosen {
		if f.place == onSingle && single >= 0 {
			acts[single] = append(acts[single], f)
			continue
		}
		if f.place == onSingle {
			single = len(acts)
		}

		acts = append(acts, []*fault{f})
	}

	return acts, err
}

// chosen returns the faults that -fault names, in its order, or an error if one is unknown. Without -fault it returns all
// faults for -long, and the most important faults otherwise.
func (p *program) chosen() (chosen []*fault, err error) {
	all := faults()
	if p.only == "" {
		return slices.DeleteFunc(all, func(f *fault) bool { return !p.long && !f.short }), nil
	}
	for name := range strings.SplitSeq(p.only, ",") {
		i := slices.IndexFunc(all, func(f *fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("chaos: no fault %q: see -list", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// report prints the table and the verdict.
func (p *program) report(out io.Writer, accounts []*account, broken []string) {
	fmt.Fprintln(out, head)
	for _, a := range accounts {
		fmt.Fprintln(out, a.row())
	}

	fmt.Fprintln(out)
	for _, b := range broken {
		fmt.Fprintln(out, "BROKEN:", b)
	}

	// On a machine that was busy, times say nothing.
	busy := 0
	for _, a := range accounts {
		if a.busy() {
			busy++
		}
	}

	if busy > 0 {
		fmt.Fprintf(out, "In %d of %d scenes the machine was too busy to judge times.\n", busy, len(accounts))
	}
	if len(broken) == 0 {
		fmt.Fprintf(out, "Every promise that was judged was kept. Outage mode %s, seed %d.\n", p.outage, p.seed)
	}
}
