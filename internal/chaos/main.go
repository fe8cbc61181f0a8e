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

// rounds is how often the long form plays each fault.
const rounds = 2

// play plays all that is asked for.
func (p *program) play() (accounts []*account, broken []string, err error) {
	if _, err := outageOf(p.outage); err != nil {
		return nil, nil, err
	}
	acts := p.acts()
	if len(acts) == 0 {
		return nil, nil, fmt.Errorf("chaos: no fault %q: see -list", p.only)
	}
	fmt.Fprintf(p.say, "seed %d\n", p.seed)
	how := script{say: p.say, mode: p.outage, short: !p.long && p.only == "", random: rand.New(rand.NewPCG(p.seed, 12))}
	turns := 1
	if p.long {
		turns = rounds
	}
	for turn := range turns {
		for _, act := range acts {
			if turn > 0 {
				how.random.Shuffle(len(act), func(i, j int) { act[i], act[j] = act[j], act[i] })
			}
			err := onBench(func(b *bench) {
				a, br := show(b, how, act[0].place, act)
				accounts, broken = append(accounts, a...), append(broken, br...)
			})
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return accounts, broken, nil
}

// acts are the faults to play, by fleet. A sentinel's servers and a cluster are
// not what they were after a fault, so each gets new ones.
func (p *program) acts() [][]*fault {
	var acts [][]*fault
	for _, f := range faults() {
		switch {
		case p.only != f.name && (p.only != "" || !p.long && !f.short):
		case f.place == onSingle && len(acts) > 0:
			acts[0] = append(acts[0], f)
		default:
			acts = append(acts, []*fault{f})
		}
	}
	return acts
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
