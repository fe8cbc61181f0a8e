package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A top is the flags of top.
type top struct {
	server
	every           time.Duration
	budgets         int
	sort, filter    string
	once            bool
	recordTo, track string
	names           labels
}

// least is how often top reads at the most.
const least = 200 * time.Millisecond

func newTop() *cobra.Command {
	var o top
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch a fleet and its budgets, live",
		Long: `Top shows what status shows, again and again. In a terminal keys sort, filter and
scroll: ? lists them. Elsewhere it prints plain lines. It writes nothing to Redis,
and works with a user that can only read.`,
		Example: `  throttle top
  throttle top --sort wait --filter shop
  throttle top --once --json`,
		Args: argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}

	o.addFlags(c)
	f := c.Flags()
	f.DurationVar(&o.every, "interval", 2*time.Second, "how often to read; how fast to replay")
	f.IntVar(&o.budgets, "budgets", fleet.DefaultBudgets, "ask about so many budgets, in the order of urgency")
	f.StringVar(&o.sort, "sort", sorts[0], "order of the budgets: "+strings.Join(sorts, ", "))
	f.StringVar(&o.filter, "filter", "", "show the budgets and nodes only that have this text")
	f.BoolVar(&o.once, "once", false, "print once, and end")
	o.names.addFlag(f)
	f.StringVar(&o.recordTo, "record", "", "append what is seen to this file, a line of JSON each time")
	f.StringVar(&o.track, "replay", "", "show what --record wrote to this file")
	_ = c.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(sorts, cobra.ShellCompDirectiveNoFileComp))

	return c
}

func (o *top) run(c *cobra.Command) (err error) {
	switch {
	case !slices.Contains(sorts, o.sort):
		return fmt.Errorf("--sort: %q is none of %s", o.sort, strings.Join(sorts, ", "))
	case o.every < least:
		return fmt.Errorf("--interval: the least is %v", least)
	case o.recordTo != "" && o.track != "":
		return errors.New("--record and --replay do not go together")
	}

	if err := o.names.read(); err != nil {
		return err
	}

	if o.track != "" {
		recorded, err := openRecording(o.track, &o.names)
		if err != nil {
			return err
		}

		defer recorded.file.Close()
		defer recorded.warn(c.ErrOrStderr())
		return o.show(c, nil, recorded)
	}

	all, closeAll, err := o.connectFleet(c.Context())
	if err != nil {
		return err
	}

	defer closeAll()
	live := source(func(ctx context.Context) (s *fleet.Snapshot, err error) {
		err = o.withTimeout(ctx, func(ctx context.Context) error {
			s, err = all.Snapshot(ctx, o.budgets)
			return err
		})
		return s, err
	})

	if o.recordTo != "" {
		recorded, closeFile, failed := live.record(o.recordTo)
		if failed != nil {
			return failed
		}

		defer func() { err = errors.Join(err, closeFile()) }()
		live = recorded
	}

	return o.show(c, o.names.labelled(live), nil)
}

// show shows a fleet that is live, or a recording.
func (o *top) show(c *cobra.Command, live source, recorded *recording) error {
	if o.once || asJSON(c) || !isTerminal(c.OutOrStdout()) || !isTerminal(c.InOrStdin()) {
		switch {
		case live != nil:
		case o.once:
			live = recorded.last
		default:
			live = recorded.next
		}

		return o.plain(c, live)
	}

	if recorded != nil {
		if err := recorded.readAll(c.Context()); err != nil {
			return err
		}
	}

	_, err := tea.NewProgram(newModel(c.Context(), o.every, o.sort, o.filter, live, recorded), tea.WithContext(c.Context()),
		tea.WithInput(c.InOrStdin()), tea.WithOutput(c.OutOrStdout())).Run()
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}

	return err
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// plain prints snapshots as lines, the next one after an interval, until they end.
func (o *top) plain(c *cobra.Command, from source) error {
	tick := time.NewTicker(o.every)
	defer tick.Stop()

	for n := 0; ; n++ {
		s, err := from(c.Context())
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && (n == 0 || o.once || c.Context().Err() != nil):
			return err
		case err != nil: // it may be back the next time
			fmt.Fprintln(c.ErrOrStderr(), "throttle: "+clean(err.Error()))
		default:
			if err := o.print(c, s, n); err != nil {
				return err
			}
		}

		if o.once {
			return nil
		}
		if o.track != "" {
			continue // as fast as it can be read
		}

		select {
		case <-tick.C:
		case <-c.Context().Done():
			return c.Context().Err()
		}
	}
}

// print prints one snapshot, the n-th from 0.
func (o *top) print(c *cobra.Command, s *fleet.Snapshot, n int) error {
	all := *s
	sortAndFilter(s, o.sort, o.filter)

	out := c.OutOrStdout()
	switch {
	case asJSON(c) && !o.once:
		return jsonLines(out).Encode(s)
	case asJSON(c):
		_, err := printJSON(c, s)
		return err
	}

	if n > 0 {
		fmt.Fprintln(out)
	}

	fmt.Fprintln(out, s.At.UTC().Format(time.RFC3339))
	return newView(s, o.filter, &all).write(out)
}
