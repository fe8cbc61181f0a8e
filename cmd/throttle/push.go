package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/policyfile/pushed"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"
)

// A pushResult is the JSON of push and rollback.
type pushResult struct {
	Version    int          `json:"version"`
	Pushed     bool         `json:"pushed"` // false if the pushed file has this text already
	Number     int64        `json:"number"`
	Generation string       `json:"generation"`
	Loosens    []string     `json:"loosens"`
	Nodes      []nodeStatus `json:"nodes"`
	alone      bool         // no program follows
}

// A nodeStatus says whether a node has put the pushed file in force.
type nodeStatus struct {
	Node    string `json:"node"`
	InForce bool   `json:"in_force"`
	Text    string `json:"text,omitempty"` // why not
}

// A pusher has the flags of push and rollback.
type pusher struct {
	operator
	loosen bool
	wait   time.Duration
}

// pushFlags adds the flags that push and rollback share.
func (p *pusher) pushFlags(c *cobra.Command) {
	p.addActFlags(c, historyHasIt)
	c.Flags().BoolVar(&p.loosen, "loosen", false, "push even if the file loosens a limit or loses a policy")
	c.Flags().DurationVar(&p.wait, "wait", time.Minute, "how long to wait until the nodes have it in force; 0: not at all")
}

// newPush returns the command push, which puts a file of policies into force on the programs that follow.
func newPush() *cobra.Command {
	var p pusher
	c := &cobra.Command{
		Use: "push FILE",
		Example: `  throttle push policies.yaml --reason "the shop has a larger plan"
  throttle push policies.yaml --yes --wait 2m`,
		Short: "Put a file of policies into force on the programs that follow",
		Long: `Push checks a file, runs its tests, and shows what the file changes and loosens.
After a confirmation it pushes the file, unless a different file was pushed
meanwhile. A file that loosens a limit or loses a policy needs the word loosen:
as the answer, or as --loosen beside --yes. Push then waits until all programs that
follow have the file in force, and exits with 1 if a program does not. If no
program follows, it prints a warning on stderr and exits with 0.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readInput(c, args[0])
			if err != nil {
				return err
			}
			return p.push(c, args[0], "push", func(context.Context, *fleet.Fleet) ([]byte, error) { return text, nil })
		},
	}

	p.pushFlags(c)
	return c
}

// newRollback returns the command rollback, which pushes an older file again.
func newRollback() *cobra.Command {
	var p pusher
	c := &cobra.Command{
		Use: "rollback [NUMBER]",
		Example: `  throttle rollback
  throttle rollback 7 --reason "number 8 was wrong"`,
		Short: "Push an older file again, under a new number",
		Long: `Rollback pushes the file with a number, by default the file before the present
one. The command history prints the numbers. Rollback asks like push: an older
file may loosen limits, too.`,
		Args: argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			number, err := numberOf(args)
			if err != nil {
				return err
			}

			name := "the file before"
			if number > 0 {
				name = fmt.Sprintf("number %d", number)
			}

			return p.push(c, name, "rollback", func(ctx context.Context, all *fleet.Fleet) ([]byte, error) {
				before, err := older(ctx, all, number)
				if err != nil {
					return nil, err
				}
				return before.Text, nil
			})
		},
	}

	p.pushFlags(c)
	return c
}

// numberOf parses the number of a file, 0 without an argument.
func numberOf(args []string) (number int64, err error) {
	if len(args) == 0 {
		return 0, nil
	}

	// The newline makes Sscanf refuse text behind the number.
	if _, err := fmt.Sscanf(args[0]+"\n", "%d\n", &number); err != nil || number < 1 {
		return 0, fmt.Errorf("%q is not the number of a file, such as 3: see history", args[0])
	}
	return number, nil
}

// older returns the file with a number from the history, or for 0 the newest file with a different text from the pushed file. If
// there is none, the error has exitUsage, and says how many entries of the history could not be read, if any.
func older(ctx context.Context, all *fleet.Fleet, number int64) (*fleet.Pushed, error) {
	files, illegible, err := all.History(ctx)
	if err != nil {
		return nil, err
	}

	if number == 0 {
		current, err := all.Pull(ctx)
		if err != nil {
			return nil, err
		}

		// The same text may have been pushed more than once. Go back to a different text.
		files = slices.DeleteFunc(files, func(p fleet.Pushed) bool { return current != nil && p.Generation == current.Generation })
		if len(files) == 0 {
			if illegible > 0 {
				return nil, &exit{exitUsage, fmt.Errorf("there is no file to roll back to: of the history %s could not be read", stat.Count(illegible, "entry", "entries"))}
			}
			return nil, &exit{exitUsage, errors.New("there is no file to roll back to")}
		}

		return &files[0], nil
	}

	for i := range files {
		if files[i].Number == number {
			return &files[i], nil
		}
	}

	if illegible > 0 {
		return nil, &exit{exitUsage, fmt.Errorf("number %d is not in the history, of which %s could not be read", number, stat.Count(illegible, "entry", "entries"))}
	}

	return nil, &exit{exitUsage, fmt.Errorf("number %d is not in the history", number)}
}

// push replaces the pushed file by the file that the function read returns: it shows the difference, asks, pushes, and waits up
// to p.wait until the nodes have the file in force. If the pushed file has the same text, push says so and pushes nothing. name
// stands for the file in the difference, act for the command in the audit. push returns exitFound if the file has mistakes,
// if a live node cannot read its version, or if a node does not have the file in force after the wait.
func (p *pusher) push(c *cobra.Command, name, act string, read func(context.Context, *fleet.Fleet) ([]byte, error)) error {
	all, closeAll, err := p.connectFleet(c.Context())
	if err != nil {
		return err
	}
	defer closeAll()

	var change *pushed.Change
	if err := p.withTimeout(c.Context(), func(ctx context.Context) error {
		text, err := read(ctx, all)
		if err != nil {
			return err
		}

		change, err = compare(ctx, all, name, text)
		return err
	}); err != nil {
		return err
	}

	// An empty list is [] in JSON, not null.
	result := pushResult{Version: outputVersion, Generation: policyfile.Generation(change.Text), Loosens: append([]string{}, change.Loosens...), Nodes: []nodeStatus{}}
	if change.Same {
		result.Number = change.Instead.Number
		return result.print(c)
	}

	fmt.Fprint(c.ErrOrStderr(), difference(change, name), loosening(change))
	if err := p.consent(c, change); err != nil {
		return err
	}

	if err := p.withTimeout(c.Context(), func(ctx context.Context) (err error) {
		result.Number, err = change.Push(ctx, act, p.name(), p.reason)
		return err
	}); err != nil {
		return err
	}

	result.Pushed = true
	progress := c.OutOrStdout()
	if asJSON(c) {
		progress = c.ErrOrStderr() // stdout is for the JSON, which follows after the wait
	}

	fmt.Fprintf(progress, "number %d (%s) is pushed\n", result.Number, result.Generation)

	var failed error
	if p.wait > 0 {
		settled := func(nodes []fleet.Node) ([]nodeStatus, bool) { return followers(nodes, result.Generation) }
		result.Nodes, failed = awaitNodes(c, &p.server, all, p.wait, settled)
		result.alone = failed == nil && len(result.Nodes) == 0
	}

	if err := result.print(c); failed == nil {
		failed = err
	}

	return failed
}

// consent asks whether to push. It returns an error unless the operator agrees. --yes alone does not agree to a file that
// loosens, because scripts always pass it.
func (p *pusher) consent(c *cobra.Command, change *pushed.Change) error {
	switch {
	case len(change.Loosens) == 0 || p.loosen:
		return p.confirm(c, "Push it?")
	case p.yes:
		return &exit{exitDeclined, errors.New("nothing was done, because it loosens: pass --loosen as well")}
	}
	return askOnTerminal(c, `Push it, though it loosens? Write "loosen" to do so: `, "--yes and --loosen", "loosen")
}

// compare compares a file with the pushed file. The error has exitFound if the file has mistakes, or if a live node cannot read its
// version. A mistake in the pushed file is no error, but a reason in Loosens.
func compare(ctx context.Context, all *fleet.Fleet, name string, text []byte) (*pushed.Change, error) {
	change, err := pushed.Compare(ctx, all, name, text)
	var old *pushed.UnreadableError
	if errors.As(err, &old) || policyfile.Mistakes(err) != nil {
		return nil, &exit{exitFound, err}
	}
	return change, err
}

// difference returns the diff from the pushed file, or from nothing, to the file of a change. name stands for the file.
func difference(change *pushed.Change, name string) string {
	var out strings.Builder
	oldName, oldText := "nothing", []byte{}
	if change.Instead != nil {
		oldName, oldText = fmt.Sprintf("number %d", change.Instead.Number), change.Instead.Text
	}
	_, lines, _ := strings.Cut(string(diff.Diff(oldName, oldText, name, change.Text)), "\n") // the first line repeats the next two
	for line := range strings.Lines(lines) {
		fmt.Fprintln(&out, fleet.Clean(strings.TrimSuffix(line, "\n"), 500))
	}
	return out.String()
}

// loosening lists the limits that a change loosens.
func loosening(change *pushed.Change) string {
	var out strings.Builder
	for _, text := range change.Loosens {
		fmt.Fprintf(&out, "it loosens: %s\n", fleet.Clean(text, 500))
	}
	return out.String()
}

// awaitNodes reads the nodes of a fleet every quarter of a second until settled reports true or limit has passed. It returns the
// last list of settled. A reading that fails, and an interrupt, end the wait with an error.
func awaitNodes[N any](c *cobra.Command, at *server, all *fleet.Fleet, limit time.Duration, settled func([]fleet.Node) ([]N, bool)) (list []N, err error) {
	end := time.After(limit)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()

	for {
		var done bool
		err := at.withTimeout(c.Context(), func(ctx context.Context) error {
			nodes, err := all.Nodes(ctx)
			list, done = settled(nodes)
			return err
		})
		if err != nil || done {
			return list, err
		}

		select {
		case <-tick.C:
		case <-end:
			return list, nil
		case <-c.Context().Done():
			return list, c.Context().Err()
		}
	}
}

// followers returns the status of each node that follows the pushed file. settled means that each of these nodes has the
// generation in force, refuses it, or is silent.
func followers(nodes []fleet.Node, generation string) (list []nodeStatus, settled bool) {
	settled, list = true, []nodeStatus{}
	for i := range nodes {
		n := &nodes[i]
		if !n.File.Pushed {
			continue
		}

		f := nodeStatus{Node: nodeName(n.Program, n.ID), InForce: n.File.InForce == generation}
		switch {
		case f.InForce:
		// A silent program may have ended, so the push does not wait for it.
		case n.Silent:
			f.Text = fmt.Sprintf("silent for %s: it is not known what it has in force", brief(n.Ago.Duration))
		case n.File.Seen == generation && n.File.Err != "":
			f.Text = n.File.Err
		default:
			settled = false
			f.Text = "has not seen it yet"

			// The program has read the file, and its grace for loosening files has not passed.
			if n.File.Seen == generation {
				f.Text = "waits, because it loosens"
			}
		}

		list = append(list, f)
	}

	return list, settled
}

// print prints the result of a push. It returns exitFound if a node that follows does not have the file in force.
func (r *pushResult) print(c *cobra.Command) error {
	behind := slices.DeleteFunc(slices.Clone(r.Nodes), func(n nodeStatus) bool { return n.InForce })
	printed, err := printJSON(c, r)

	out := c.OutOrStdout()
	switch {
	case printed:
	case !r.Pushed:
		fmt.Fprintf(out, "number %d has this text: there is nothing to push\n", r.Number)
	case r.alone:
		// Pushing before the programs start is legitimate, so this is no failure.
		fmt.Fprintf(c.ErrOrStderr(), "number %d is pushed, and in force nowhere: no program that reports follows what is pushed\n", r.Number)
	case len(r.Nodes) > 0:
		for _, n := range behind {
			fmt.Fprintf(out, "%s: %s\n", n.Node, n.Text)
		}
		fmt.Fprintf(out, "in force on %d of %s\n", len(r.Nodes)-len(behind), stat.Count(len(r.Nodes), "node that follows", "nodes that follow"))
	}

	if err == nil && len(behind) > 0 {
		err = &exit{code: exitFound}
	}

	return err
}

// A pullResult is the JSON of pull.
type pullResult struct {
	Version int `json:"version"`
	*fleet.Pushed
	Text string `json:"text"`
}

// newPull returns the command pull, which prints a pushed file.
func newPull() *cobra.Command {
	var at server
	var outputFile string
	c := &cobra.Command{
		Use: "pull [NUMBER]",
		Example: `  throttle pull
  throttle pull 7`,
		Short: "Print the file of policies that is pushed, or that had a number",
		Args:  argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			number, err := numberOf(args)
			if err != nil {
				return err
			}

			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				p, err := pull(ctx, all, number)
				if err != nil {
					return err
				}
				if outputFile != "" {
					if err := os.WriteFile(outputFile, p.Text, 0o644); err != nil {
						return err
					}
				}

				printed, err := printJSON(c, pullResult{outputVersion, p, string(p.Text)})
				if !printed && outputFile == "" {
					_, err = c.OutOrStdout().Write(p.Text)
				}

				return err
			})
		},
	}

	at.addFlags(c)
	c.Flags().StringVarP(&outputFile, "output", "o", "", "write the text to this file")
	return c
}

// pull returns the file with a number, or the pushed file for 0. The error has exitFound if nothing is pushed.
func pull(ctx context.Context, all *fleet.Fleet, number int64) (*fleet.Pushed, error) {
	if number > 0 {
		return older(ctx, all, number)
	}
	p, err := all.Pull(ctx)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, &exit{exitFound, errors.New("nothing is pushed")}
	}
	return p, nil
}

// A diffResult is the JSON of diff.
type diffResult struct {
	Version int      `json:"version"`
	Number  int64    `json:"number"` // of the pushed file, or 0
	Same    bool     `json:"same"`   // both have the same text
	Loosens []string `json:"loosens"`
	Diff    string   `json:"diff"`
}

// newDiff returns the command diff, which prints what a push of a file would change.
func newDiff() *cobra.Command {
	var at server
	c := &cobra.Command{
		Use:     "diff FILE",
		Example: `  throttle diff policies.yaml`,
		Short:   "Show what pushing a file would change",
		Long: `Diff compares a file with the pushed file, and prints what the file loosens. It
exits with 1 if they differ.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readInput(c, args[0])
			if err != nil {
				return err
			}

			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				change, err := compare(ctx, all, args[0], text)
				if err != nil {
					return err
				}

				result := diffResult{Version: outputVersion, Same: change.Same, Loosens: append([]string{}, change.Loosens...), Diff: difference(change, args[0])}
				if change.Instead != nil {
					result.Number = change.Instead.Number
				}

				done, err := printJSON(c, result)
				if !done {
					_, err = fmt.Fprint(c.OutOrStdout(), result.Diff, loosening(change))
				}
				if err == nil && !change.Same {
					err = &exit{code: exitFound}
				}

				return err
			})
		},
	}

	at.addFlags(c)
	return c
}

// A historyResult is the JSON of history.
type historyResult struct {
	Version   int            `json:"version"`
	Files     []fleet.Pushed `json:"files"`
	Illegible int            `json:"illegible"` // number of entries that could not be parsed
}

// newHistory returns the command history, which lists the pushed files.
func newHistory() *cobra.Command {
	var at server
	c := &cobra.Command{
		Use:     "history",
		Example: `  throttle history`,
		Short:   "Show which files of policies were pushed, the newest first",
		Args:    argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				files, illegible, err := all.History(ctx)
				if err != nil {
					return err
				}

				return output(c, historyResult{outputVersion, files, illegible}, func() error {
					t := table{titles: []string{"NUMBER", "GENERATION", "WHEN", "WHO", "REASON"}}
					for _, p := range files {
						t.add(p.Number, p.Generation, p.At.Format(time.RFC3339), p.By, cmp.Or(p.Reason, "-"))
					}

					err := t.print(c.OutOrStdout())
					leftOut(c, illegible)
					return err
				})
			})
		},
	}

	at.addFlags(c)
	return c
}

// leftOut says on stderr how many entries could not be parsed, so that a table on stdout stays parsable.
func leftOut(c *cobra.Command, illegible int) {
	if illegible > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%s could not be read\n", stat.Count(illegible, "more entry", "more entries"))
	}
}
