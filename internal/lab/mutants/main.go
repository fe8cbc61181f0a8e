package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := program(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// program is main without the process around it. It returns an error if a trial cannot be held, or if a mutation survives
// without an explanation or is invalid.
func program(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	run := flags.String("run", "", "only those whose promise and name match, as in 'P11 lease-ends'")
	listOnly := flags.Bool("list", false, "name them and do nothing")
	write := flags.Bool("write", false, "keep the verdicts in "+recordFile)
	printTable := flags.Bool("table", false, "print the verdict on each mutation, by promise, in Markdown")
	unrun := flags.Bool("unrun", false, "only those that were not run as they are now")
	shard := flags.String("shard", "1/1", "only this part of them, as in 2/6")
	root := flags.String("root", ".", "the module's folder")
	atOnce := flags.Int("p", 1, "how many at once: 1 or 2, because many tests are about time")
	if err := flags.Parse(args); err != nil {
		return err
	}

	pattern, err := regexp.Compile(*run)
	if err != nil {
		return err
	}

	all, err := list()
	if err != nil {
		return err
	}

	if *printTable {
		kept, err := records(*root)
		if err != nil {
			return err
		}

		_, err = io.WriteString(out, table(all, kept))
		return err
	}

	// The flags narrow the list down. The shard comes last, so that all shards together are the whole choice.
	chosen := pick(all, pattern)
	if *unrun {
		kept, err := records(*root)
		if err != nil {
			return err
		}
		chosen = slices.DeleteFunc(chosen, func(m mutation) bool { return kept[m.name].id == m.id() })
	}

	if chosen, err = part(chosen, *shard); err != nil {
		return err
	}

	if *listOnly {
		for _, m := range chosen {
			fmt.Fprintf(out, "%-4s %-28s %s: %s\n", m.promise, m.name, m.place(), m.what)
		}
		return nil
	}

	// A mutation that does not fit the source would waste an hour of trials before it is seen.
	if err := fits(chosen, *root); err != nil {
		return err
	}

	// Forget the verdicts on mutations that have left the list.
	if *write {
		if err := keep(*root, all); err != nil {
			return err
		}
	}

	seen, err := runAll(ctx, *root, chosen, min(max(1, *atOnce), 2), func(r trial) error {
		fmt.Fprintf(out, "%-9s %-4s %-28s %5.1fs %s\n", r.verdict, r.promise, r.name, r.took.Seconds(), r.by)

		// Write each verdict at once, so that an interrupted run loses nothing.
		if *write {
			return keep(*root, all, r)
		}
		return nil
	})
	if err != nil {
		return err
	}

	return judge(seen, out)
}

// part returns the mutations of one shard, "2/6": every sixth, from the second on.
func part(all []mutation, shard string) ([]mutation, error) {
	var which, of int
	if _, err := fmt.Sscanf(shard, "%d/%d", &which, &of); err != nil || which < 1 || which > of {
		return nil, fmt.Errorf("-shard %s: say which part of how many, as in 2/6", shard)
	}

	var chosen []mutation
	for i := which - 1; i < len(all); i += of {
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// judge prints the number of each verdict, and fails if a mutation survived or is invalid.
func judge(seen []trial, out io.Writer) error {
	count := make(map[verdict]int)
	for _, r := range seen {
		count[r.verdict]++
	}
	fmt.Fprintf(out, "%d killed, %d explained, %d survived, %d invalid\n",
		count[killed], count[excused], count[survived], count[invalid])
	if bad := count[survived] + count[invalid]; bad > 0 {
		return fmt.Errorf("%d of %d mutations are not killed", bad, len(seen))
	}
	return nil
}
