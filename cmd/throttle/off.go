package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
	"github.com/spf13/cobra"
)

// defaultOff is for how long throttle is off by default.
const defaultOff = time.Hour

// A switcher has the flags of off and on.
type switcher struct {
	operator
	length time.Duration // of off
	wait   time.Duration
}

// switchFlags adds the flags that off and on share.
func (s *switcher) switchFlags(c *cobra.Command) {
	s.addActFlags(c, "status, the page and the audit have it")
	c.Flags().BoolVar(&s.dry, "dry-run", false, "print which programs would be told, and change nothing")
	c.Flags().DurationVar(&s.wait, "wait", 15*time.Second, "how long to wait until the programs have heard it; 0: not at all")
}

// newOff returns the command off, which turns throttle off for a while in all programs of a fleet.
func newOff() *cobra.Command {
	var s switcher
	c := &cobra.Command{
		Use: "off",
		Example: `  throttle off --reason "throttle holds what the shop allows"
  throttle off --for 15m --yes`,
		Short: "Turn throttle off for a while: no limit holds any program of the fleet",
		Long: `Off turns throttle off for all programs that report themselves (see docs/run/off.md):
each request starts at once, also one that waits, and also in a budget that is closed
by a ban or a pause. Requests are counted as passed. Programs hear it within about a
second, and are on again at the end of --for, or after the command on. Off then waits
until all programs have heard it, and exits with 1 if a program has not. A program that
does not report itself does not hear it: set THROTTLE_OFF=1, and restart the program.`,
		Args: argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if s.length <= 0 || s.length > fleet.MaxOff {
				return fmt.Errorf("--for: say for how long, at most %v", fleet.MaxOff)
			}

			question := fmt.Sprintf("Turn throttle off for %s? Bans will not be kept either.", lengthWords(s.length))
			return s.turn(c, "off", question, func(ctx context.Context, all *fleet.Fleet) (fleet.Switch, bool, error) {
				return all.TurnOff(ctx, s.length, s.name(), s.reason)
			})
		},
	}

	s.switchFlags(c)
	c.Flags().DurationVar(&s.length, "for", defaultOff, "how long throttle is off")
	return c
}

// newOn returns the command on, which ends what off began.
func newOn() *cobra.Command {
	var s switcher
	c := &cobra.Command{
		Use: "on",
		Example: `  throttle on --reason "the table is mended"
  throttle on --yes`,
		Short: "Turn throttle on again: the limits hold all programs of the fleet",
		Long: `On ends what the command off began, for all programs that report themselves. Requests
that start from then on obey their limits. The requests that passed meanwhile are not
counted against a budget, so the upstream may count more than the limit until the windows
that were open at that moment are over. Bans that programs were told meanwhile hold.`,
		Args: argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return s.turn(c, "on", "Turn throttle on?", func(ctx context.Context, all *fleet.Fleet) (fleet.Switch, bool, error) {
				return all.TurnOn(ctx, s.name(), s.reason)
			})
		},
	}

	s.switchFlags(c)
	return c
}

// A switchResult is the JSON of off and on.
type switchResult struct {
	Version int `json:"version"`
	fleet.Switch
	Was   bool         `json:"was_off"`
	Nodes []switchNode `json:"nodes"` // empty if the command did not wait
}

// A switchNode says whether a program has heard the command.
type switchNode struct {
	Node  string `json:"node"`
	Heard bool   `json:"heard"`
	Text  string `json:"text,omitempty"` // why not
}

// turn asks the question, calls does to turn the switch, and waits until the programs have heard it, for --wait at most.
// does returns the switch, and whether throttle was off before. act is "off" or "on". turn returns an error if a program
// has not heard it after the wait. With --dry-run it only prints the state and the question.
func (s *switcher) turn(c *cobra.Command, act, question string, does func(context.Context, *fleet.Fleet) (fleet.Switch, bool, error)) error {
	all, closeAll, err := s.connectFleet(c.Context())
	if err != nil {
		return err
	}
	defer closeAll()

	var now string
	if err := s.withTimeout(c.Context(), func(ctx context.Context) error {
		snapshot, err := all.Snapshot(ctx, 1)
		if err == nil {
			now = switchNow(snapshot)
		}
		return err
	}); err != nil {
		return err
	}

	if s.dry {
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s Nothing is done: without --dry-run the question is: %s\n", now, question)
		return err
	}
	if err := s.confirm(c, now+" "+question); err != nil {
		return err
	}

	result := switchResult{Version: outputVersion, Nodes: []switchNode{}}
	if err := s.withTimeout(c.Context(), func(ctx context.Context) (err error) {
		result.Switch, result.Was, err = does(ctx, all)
		return err
	}); err != nil {
		return err
	}

	var failed error
	if s.wait > 0 {
		settled := func(nodes []fleet.Node) ([]switchNode, bool) { return listeners(nodes, &result.Switch) }
		result.Nodes, failed = awaitNodes(c, &s.server, all, s.wait, settled)
	}
	if err := result.print(c, act); failed == nil {
		failed = err
	}

	return failed
}

// switchNow says how many programs have reported lately, and how many of them are off.
func switchNow(s *fleet.Snapshot) string {
	live := len(s.Nodes) - s.Silent
	if s.Off == 0 {
		return fmt.Sprintf("%s reported lately, and throttle is on.", stat.Count(live, "program has", "programs have"))
	}
	return fmt.Sprintf("%s reported lately, and %d of them off.", stat.Count(live, "program has", "programs have"), s.Off)
}

// listeners returns which programs have heard an operator's command. settled means that no live program is left that could
// still hear it.
func listeners(nodes []fleet.Node, command *fleet.Switch) (list []switchNode, settled bool) {
	settled, list = true, []switchNode{}
	for i := range nodes {
		n := &nodes[i]
		l := switchNode{Node: nodeName(n.Program, n.ID), Heard: n.Switch.Took(command)}
		switch {
		// A program that is off by its environment follows no command of an operator: off is so already, on has no effect.
		case n.Switch.By == store.OffVariable:
			l.Heard = command.Off
			if !l.Heard {
				l.Text = "is off by " + store.OffVariable + ": restart it without the variable"
			}

		case l.Heard:
		// A silent program may have ended, so the command does not wait for it.
		case n.Silent:
			l.Text = fmt.Sprintf("silent for %s: it is not known whether it has heard it", brief(n.Ago.Duration))
		default:
			settled = false
			l.Text = fmt.Sprintf("has not heard it yet (throttle %s)", n.Library)
		}

		list = append(list, l)
	}

	return list, settled
}

// print prints the result. act is "off" or "on". print returns exitFound if a program has not heard of the act.
func (r *switchResult) print(c *cobra.Command, act string) error {
	var unheard []switchNode
	for _, n := range r.Nodes {
		if !n.Heard {
			unheard = append(unheard, n)
		}
	}

	done, err := printJSON(c, r)
	if !done {
		r.printText(c.OutOrStdout(), act, unheard)
	}

	if err == nil && len(unheard) > 0 {
		err = &exit{code: exitFound}
	}
	return err
}

// printText prints the result in words. act is "off" or "on", unheard are the programs that have not heard of it.
func (r *switchResult) printText(out io.Writer, act string, unheard []switchNode) {
	for _, n := range unheard {
		fmt.Fprintf(out, "%s: %s\n", n.Node, n.Text)
	}

	words := []string{"throttle is " + act}
	if r.Off {
		words = append(words, fmt.Sprintf("until %s", r.Until.Format(time.RFC3339)))
	}
	if len(r.Nodes) > 0 {
		words = append(words, fmt.Sprintf("%d of %s heard it", len(r.Nodes)-len(unheard), stat.Count(len(r.Nodes), "program has", "programs have")))
	}

	fmt.Fprintln(out, strings.Join(words, ", "))
}

// switchLines returns the lines of a view about an operator's command off, and about programs that are off without it: one for
// each, until there are more than mostRunbooks lines.
func switchLines(s *fleet.Snapshot) (lines []string) {
	var passed int64
	for i := range s.Nodes {
		passed += s.Nodes[i].Switch.Passed
	}

	by := "" // the operator whose command has a line already
	if w := s.Switch; w != nil && w.Off && w.Until.After(s.At) {
		by = w.By
		off := store.Off{By: w.By, Reason: w.Reason}
		lines = append(lines, fmt.Sprintf("throttle is %v, %s left; %s passed", off, brief(w.Until.Sub(s.At)), stat.Count(int(passed), "request has", "requests have")))
	}

	// Programs may be off without an operator's command: by their environment, by themselves, or by a command that Redis has lost.
	for i := range s.Nodes {
		n := &s.Nodes[i]
		hasLine := by != "" && n.Switch.By == by
		if n.Silent || !n.Switch.Off || hasLine {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s is %v", nodeName(n.Program, n.ID), store.Off{By: n.Switch.By, Reason: n.Switch.Reason}))

		// Leave room for the rest of the view.
		if len(lines) > mostRunbooks {
			break
		}
	}

	return lines
}
