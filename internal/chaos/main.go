package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

func main() {
	if os.Getenv(memberEnv) != "" {
		if err := memberMain(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns its exit code.
func run(args []string, out, errs io.Writer) int {
	p := program{say: errs}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.BoolVar(&p.long, "long", false, "play all faults, twice, in random order; some ten minutes")
	flags.StringVar(&p.only, "fault", "", "play only the fault of this `name`")
	flags.StringVar(&p.outage, "outage", "wait", "what the fleet does while Redis is away: wait, share or open")
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

// A program is what the flags say.
type program struct {
	say    io.Writer
	long   bool
	only   string
	outage string
	seed   uint64
}

// play plays all that is asked for, each place with a fleet of its own.
func (p *program) play() (accounts []*account, broken []string, err error) {
	if _, err := outageOf(p.outage); err != nil {
		return nil, nil, err
	}
	chosen := p.chosen()
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("chaos: no fault %q: see -list", p.only)
	}
	random := rand.New(rand.NewPCG(p.seed, 12))
	fmt.Fprintf(p.say, "seed %d\n", p.seed)
	for _, where := range []place{onSingle, onSentinel, onCluster} {
		var here []*fault
		for _, f := range chosen {
			if f.place == where {
				here = append(here, f)
			}
		}
		if len(here) == 0 {
			continue
		}
		err := onBench(func(b *bench) {
			a, br := show(b, p.say, where, p.outage, random, here)
			accounts, broken = append(accounts, a...), append(broken, br...)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return accounts, broken, nil
}

// chosen are the faults to play.
func (p *program) chosen() []*fault {
	var chosen []*fault
	for _, f := range faults() {
		if p.only == f.name || p.only == "" && (p.long || f.short) {
			chosen = append(chosen, f)
		}
	}
	return chosen
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
	if len(broken) == 0 {
		fmt.Fprintf(out, "Every promise was kept. Outage mode %s, seed %d.\n", p.outage, p.seed)
	}
}
