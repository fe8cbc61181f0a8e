package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := program(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// program is main without the process around it.
func program(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	run := flags.String("run", "", "only those whose promise and name match, as in 'P11 lease-ends'")
	only := flags.Bool("list", false, "name them and do nothing")
	write := flags.Bool("write", false, "keep what was seen: "+recordFile+" and the table of "+pageFile)
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
	chosen := pick(all, pattern)
	if *only {
		for _, m := range chosen {
			fmt.Fprintf(out, "%-4s %-28s %s: %s\n", m.promise, m.name, m.place(), m.what)
		}
		return nil
	}
	if err := fits(chosen, *root); err != nil {
		return err
	}
	if *write { // and forget what the list has no more
		if err := keep(*root, all); err != nil {
			return err
		}
	}
	seen, err := runAll(ctx, *root, chosen, min(max(1, *atOnce), 2), func(r trial) error {
		fmt.Fprintf(out, "%-9s %-4s %-28s %5.1fs %s\n", r.verdict, r.promise, r.name, r.took.Seconds(), r.by)
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

// judge counts, and fails if anything is not as it should be.
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
