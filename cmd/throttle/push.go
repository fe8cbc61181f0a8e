package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/policyfile/pushed"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A pushResult is what push and rollback print as JSON.
type pushResult struct {
	Version    int          `json:"version"`
	Pushed     bool         `json:"pushed"` // false: what was pushed before has this text
	Number     int64        `json:"number"`
	Generation string       `json:"generation"`
	Loosens    []string     `json:"loosens"`
	Nodes      []nodeStatus `json:"nodes"`
	alone      bool         // nobody follows
}

// A nodeStatus is what a node that follows has made of what is pushed.
type nodeStatus struct {
	Node    string `json:"node"`
	InForce bool   `json:"in_force"`
	Text    string `json:"text,omitempty"` // why not
}

// A pusher is push, or rollback.
type pusher struct {
	operator
	loosen bool
	wait   time.Duration
}

func (p *pusher) pushFlags(c *cobra.Command) {
	p.addActFlags(c, historyHasIt)
	c.Flags().BoolVar(&p.loosen, "loosen", false, "push it though it loosens a limit or loses a policy")
	c.Flags().DurationVar(&p.wait, "wait", time.Minute, "how long to wait until the nodes have it in force; 0: not at all")
}

func newPush() *cobra.Command {
	var p pusher
	c := &cobra.Command{
		Use: "push FILE",
		Example: `  throttle push policies.yaml --reason "the shop has a larger plan"
  throttle push policies.yaml --yes --wait 2m`,
		Short: "Put a file of policies into force on the programs that follow",
		Long: `Push checks a file and runs its tests, shows what it changes and what it loosens,
asks, and pushes it if nobody else has meanwhile. What loosens a limit or loses
a policy needs the word loosen: as the answer, or as --loosen beside --yes. It
then waits until every program that follows has it in force, and exits with 1
if one has not. If no program follows, it says so on stderr, and exits with 0.`,
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

func newRollback() *cobra.Command {
	var p pusher
	c := &cobra.Command{
		Use: "rollback [NUMBER]",
		Example: `  throttle rollback
  throttle rollback 7 --reason "number 8 was wrong"`,
		Short: "Push an older file again, under a new number",
		Long: `Rollback pushes the file that had a number, or else the one before the last. See
history for the numbers. It asks as push does: an older file may loosen, too.`,
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

// numberOf reads the number of a file; 0: none is said.
func numberOf(args []string) (number int64, err error) {
	if len(args) == 0 {
		return 0, nil
	}
	if _, err := fmt.Sscanf(args[0]+"\n", "%d\n", &number); err != nil || number < 1 {
		return 0, fmt.Errorf("%q is not the number of a file, such as 3: see history", args[0])
	}
	return number, nil
}

// older returns the file that had a number, or for 0 the one before what is pushed.
func older(ctx context.Context, all *fleet.Fleet, number int64) (*fleet.Pushed, error) {
	files, illegible, err := all.History(ctx)
	if err != nil {
		return nil, err
	}

	if number == 0 {
		now, err := all.Pull(ctx)
		if err != nil {
			return nil, err
		}

		files = slices.DeleteFunc(files, func(p fleet.Pushed) bool { return now != nil && p.Generation == now.Generation })
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

// push compares a text with what is pushed, asks, pushes it and waits for the nodes.
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
		var conflict *fleet.ConflictError
		if errors.As(err, &conflict) {
			return &exit{exitConflict, err}
		}

		return err
	}); err != nil {
		return err
	}

	result.Pushed = true
	said := c.OutOrStdout()
	if asJSON(c) {
		said = c.ErrOrStderr() // the document comes when the wait is over
	}

	fmt.Fprintf(said, "number %d (%s) is pushed\n", result.Number, result.Generation)
	var failed error

	if p.wait > 0 {
		result.Nodes, failed = p.await(c, all, result.Generation)
		result.alone = failed == nil && len(result.Nodes) == 0
	}

	if err := result.print(c); failed == nil {
		failed = err
	}

	return failed
}

// consent asks whether to push. A yes is not enough for a change that loosens, because a
// script says it whatever the change is.
func (p *pusher) consent(c *cobra.Command, change *pushed.Change) error {
	switch {
	case len(change.Loosens) == 0 || p.loosen:
		return p.confirm(c, "Push it?")
	case p.yes:
		return &exit{exitDeclined, errors.New("nothing was done, because it loosens: pass --loosen as well")}
	}
	return askOnTerminal(c, `Push it, though it loosens? Write "loosen" to do so: `, "--yes and --loosen", "loosen")
}

// compare looks at a text that is to be pushed, or compared. A file with mistakes was found
// to have them.
func compare(ctx context.Context, all *fleet.Fleet, name string, text []byte) (*pushed.Change, error) {
	change, err := pushed.Compare(ctx, all, name, text)
	var old *pushed.UnreadableError
	if errors.As(err, &old) || policyfile.Mistakes(err) != nil {
		return nil, &exit{exitFound, err}
	}
	return change, err
}

// difference shows what a change is.
func difference(change *pushed.Change, name string) string {
	var out strings.Builder
	before, text := "nothing", []byte{}
	if change.Instead != nil {
		before, text = fmt.Sprintf("number %d", change.Instead.Number), change.Instead.Text
	}
	_, lines, _ := strings.Cut(string(diff.Diff(before, text, name, change.Text)), "\n") // its first line says what the next two do
	for line := range strings.Lines(lines) {
		fmt.Fprintln(&out, fleet.Clean(strings.TrimSuffix(line, "\n"), 500))
	}
	return out.String()
}

// loosening says what a change loosens.
func loosening(change *pushed.Change) string {
	var out strings.Builder
	for _, text := range change.Loosens {
		fmt.Fprintf(&out, "it loosens: %s\n", fleet.Clean(text, 500))
	}
	return out.String()
}

// await waits until all live nodes that follow have a generation in force, or refuse it.
func (p *pusher) await(c *cobra.Command, all *fleet.Fleet, generation string) (list []nodeStatus, err error) {
	end := time.After(p.wait)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()

	for {
		var settled bool
		err := p.withTimeout(c.Context(), func(ctx context.Context) error {
			nodes, err := all.Nodes(ctx)
			list, settled = followers(nodes, generation)
			return err
		})
		if err != nil || settled {
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

// followers says what nodes have made of a generation, and whether all have that are not silent.
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
		case n.Silent:
			f.Text = fmt.Sprintf("silent for %s: it is not known what it has in force", brief(n.Ago.Duration))
		case n.File.Seen == generation && n.File.Err != "":
			f.Text = n.File.Err
		default:
			settled = false
			f.Text = "has not seen it yet"
			if n.File.Seen == generation {
				f.Text = "waits, because it loosens"
			}
		}

		list = append(list, f)
	}

	return list, settled
}

// print says what became of a push.
func (r *pushResult) print(c *cobra.Command) error {
	behind := slices.DeleteFunc(slices.Clone(r.Nodes), func(n nodeStatus) bool { return n.InForce })
	done, err := printJSON(c, r)

	out := c.OutOrStdout()
	switch {
	case done:
	case !r.Pushed:
		fmt.Fprintf(out, "number %d has this text: there is nothing to push\n", r.Number)
	case r.alone:
		// A push before the programs start is right, so that is no failure.
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
