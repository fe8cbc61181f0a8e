package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/spf13/cobra"
)

// An operator has the flags of the commands that change a fleet.
type operator struct {
	server
	key, file  string
	by, reason string
	yes        bool
	dry        bool // show what would be done, and do nothing

	check func(fleet.Target, error) error // nil, or what act asks with the budget, or with the error of finding the budget; an error ends the act
}

// Who reads the reason of an act.
const (
	heldReadIt   = "callers held by the pause see it"
	auditHasIt   = "the audit has it"
	historyHasIt = "the audit and the history have it"
)

// addActFlags adds the flags of all acts. reason says who reads the reason.
func (o *operator) addActFlags(c *cobra.Command, reason string) {
	o.addFlags(c)
	c.Flags().StringVar(&o.by, "by", "", "name of the operator (default user@host)")
	c.Flags().StringVar(&o.reason, "reason", "", "reason of the act; "+reason)
	c.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
}

// addBudgetFlags adds the flags of acts on a budget.
func (o *operator) addBudgetFlags(c *cobra.Command, reason string) {
	o.addActFlags(c, reason)
	c.ValidArgsFunction = o.complete
	c.Flags().StringVar(&o.key, "key", "", "key of the budget in clear text; only its hash is sent")
	c.Flags().StringVar(&o.file, "file", "", "file with the policy, if no program has used the policy yet")
}

// name returns the operator's name: --by, or user@host.
func (o *operator) name() string {
	if o.by != "" {
		return o.by
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown")
}

// complete completes the name of a budget from the reports of programs.
func (o *operator) complete(c *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	// A completion of the shell has no place for an error.
	_ = o.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) (err error) {
		names, err = all.Names(ctx)
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// find returns the budget of a name and of --key. It looks for the policy in --file or, without --file, in the reports of
// programs and then in the pushed file. The error has exitUsage if the name is wrong, or if a file has mistakes.
func (o *operator) find(ctx context.Context, all *fleet.Fleet, name string) (t fleet.Target, err error) {
	q := fleet.Query{Name: name, Key: o.key}
	if o.file != "" {
		f, err := policyfile.Load(o.file)
		if err != nil {
			return t, &exit{exitUsage, err}
		}
		q.Table = f.All()
	}

	t, err = all.Find(ctx, q)
	var wrong *fleet.TargetError

	// No report knows the policy. The pushed file may have a policy that no program has used yet.
	if o.file == "" && errors.As(err, &wrong) {
		q.Table, err = pushedTable(ctx, all)
		switch mistakes := policyfile.Mistakes(err); {
		case mistakes != nil:
			return t, &exit{exitUsage, fmt.Errorf("%w; and what is pushed cannot be read: %w", wrong, mistakes[0])}
		case err != nil:
			return t, err
		}

		t, err = all.Find(ctx, q)
	}

	if errors.As(err, &wrong) {
		return t, &exit{exitUsage, err}
	}

	return t, err
}

// pushedTable returns the pushed policies, or nil if nothing is pushed.
func pushedTable(ctx context.Context, all *fleet.Fleet) ([]throttle.Policy, error) {
	p, err := all.Pull(ctx)
	if err != nil || p == nil {
		return nil, err
	}
	f, err := policyfile.Parse("pushed", p.Text)
	if err != nil {
		return nil, err
	}
	return f.All(), nil
}

// confirm asks a question, unless --yes was passed. It returns an error unless the operator agrees.
func (o *operator) confirm(c *cobra.Command, question string) error {
	if o.yes {
		return nil
	}
	return askOnTerminal(c, question+" [y/N] ", "--yes", "y", "yes")
}

// askOnTerminal asks a question on stderr and reads the answer from stdin. It returns an error unless the
// answer is one of words, in any case of letters. If stdin is empty, the error names flags that would answer the question.
func askOnTerminal(c *cobra.Command, question, flags string, words ...string) error {
	fmt.Fprint(c.ErrOrStderr(), question)
	answer, err := bufio.NewReader(stdin(c)).ReadString('\n')

	// An error begins on a line of its own, behind the question.
	switch {
	case err == io.EOF && answer == "":
		fmt.Fprintln(c.ErrOrStderr())
		return fmt.Errorf("stdin is not interactive: pass %s", flags)
	case err != nil && err != io.EOF:
		fmt.Fprintln(c.ErrOrStderr())
		return err
	}

	if !slices.Contains(words, strings.ToLower(strings.TrimSpace(answer))) {
		return &exit{exitDeclined, errors.New("nothing was done")}
	}

	return nil
}

// An actResult is the JSON of an act.
type actResult struct {
	Version int    `json:"version"`
	Act     string `json:"act"`
	Budget  string `json:"budget"`
	For     int64  `json:"for_ms,omitempty"`
	Closed  int64  `json:"closed_ms,omitempty"` // of a pause: how long a ban still closes the budget, if it ends later

	Used *fleet.Change `json:"used,omitempty"` // of set-used
}

// words describes the result of the act, as the end of a sentence about the budget.
func (r *actResult) words() string {
	switch r.Act {
	case "pause":
		if r.Closed > 0 {
			return fmt.Sprintf("stays closed for %s, by a ban that ends later", lengthWords((time.Duration(r.Closed) * time.Millisecond).Round(time.Second)))
		}
		return "is closed for " + lengthWords(time.Duration(r.For)*time.Millisecond)
	case "resume":
		return "is open"
	case "reset":
		return "is open, and its bans are forgotten"
	}
	return fmt.Sprintf("has %d used, %d before", r.Used.After, r.Used.Before)
}

// act finds a budget, shows its state, asks the question, calls does for the budget, and prints done, with the fields that are
// not known before. With --dry-run it only prints the state and the question.
func (o *operator) act(c *cobra.Command, name, question string, done actResult, does func(context.Context, *fleet.Fleet, fleet.Target) error) error {
	all, closeAll, err := o.connectFleet(c.Context())
	if err != nil {
		return err
	}
	defer closeAll()

	var t fleet.Target
	var state fleet.State
	var note *fleet.Note
	if err = o.withTimeout(c.Context(), func(ctx context.Context) (err error) {
		t, err = o.find(ctx, all, name)
		if o.check != nil {
			err = o.check(t, err)
		}
		if err == nil {
			state, note, err = all.State(ctx, t)
		}

		return err
	}); err != nil {
		return err
	}

	words := stateWords(t.Limit, state)
	if note != nil {
		words = append(noteWords(note, state.Paused.Duration), words...)
	}

	now := fmt.Sprintf("%s (%v) is now: %s.", t.Name, t.Limit, strings.Join(words, ", "))
	if o.dry {
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s Nothing is done: without --dry-run the question is: %s\n", now, question)
		return err
	}

	// Ask without a time limit: --timeout is for Redis, not for the operator.
	if err := o.confirm(c, now+" "+question); err != nil {
		return err
	}
	if err := o.withTimeout(c.Context(), func(ctx context.Context) error { return does(ctx, all, t) }); err != nil {
		return err
	}

	// state is from before the act. A pause that is shorter than an operator's is refused, so a budget that was closed for longer
	// has a ban, which a pause does not shorten.
	isBanned := state.Paused.Milliseconds() > done.For
	if done.Act == "pause" && isBanned {
		done.Closed = state.Paused.Milliseconds()
	}

	done.Version, done.Budget = outputVersion, t.Name
	printed, err := printJSON(c, done)
	if !printed {
		fmt.Fprintf(c.OutOrStdout(), "%s %s\n", t.Name, done.words())
	}

	return err
}

// newPause returns the command pause, which closes a budget for a while.
func newPause() *cobra.Command {
	var o operator
	var d time.Duration
	c := &cobra.Command{
		Use: "pause POLICY|BUDGET",
		Example: `  throttle pause shop --key acme --for 10m --reason "the shop moves"
  throttle pause shop/f32021364bac --for 10m --dry-run`,
		Short: "Close a budget for a while, for the whole fleet",
		Long: `Pause closes a budget for the time of --for, or until resume: no request starts
meanwhile. Status, top and the errors of callers held by the pause show the reason.
Name a budget by its policy, with --key if the policy has keys, or by the name that
status prints.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if d <= 0 || d > throttle.MaxPenalty {
				return fmt.Errorf("--for: say for how long, at most %v", throttle.MaxPenalty)
			}

			return o.act(c, args[0], "Close it for "+lengthWords(d)+"?", actResult{Act: "pause", For: d.Milliseconds()},
				func(ctx context.Context, all *fleet.Fleet, t fleet.Target) error {
					return all.Pause(ctx, t, d, o.name(), o.reason)
				})
		},
	}

	o.addBudgetFlags(c, heldReadIt)
	c.Flags().DurationVar(&d, "for", 0, "length of the pause, such as 10m; required")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "print the budget and its state, and change nothing")

	return c
}

// newResume returns the command resume, which ends pauses of operators.
func newResume() *cobra.Command {
	var o operator
	var everyPause bool
	c := &cobra.Command{
		Use: "resume POLICY|BUDGET|--all",
		Example: `  throttle resume shop --key acme
  throttle resume shop/f32021364bac
  throttle resume --all --reason "the shop has moved"`,
		Short: "End the pause of a budget, or of all",
		Long: `Resume ends the pause of an operator. A budget that an answer of the upstream closed
stays closed: see reset. With --all it ends the pauses of all operators.`,
		Args: argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case everyPause && (len(args) > 0 || o.key != ""):
				return errors.New("--all: name no budget beside it")
			case everyPause:
				return o.resumeAll(c)
			case len(args) == 0:
				return errors.New("name a policy or a budget, or pass --all")
			}

			return o.act(c, args[0], "Open it?", actResult{Act: "resume"}, func(ctx context.Context, all *fleet.Fleet, t fleet.Target) error {
				return all.Resume(ctx, t, o.name(), o.reason)
			})
		},
	}

	o.addBudgetFlags(c, auditHasIt)
	c.Flags().BoolVar(&everyPause, "all", false, "end the pauses of all operators")
	return c
}

// A resumedAll is the JSON of resume --all.
type resumedAll struct {
	Version int      `json:"version"`
	Act     string   `json:"act"`
	Budgets []string `json:"budgets"`
}

// resumeAll shows the pauses of all operators, asks once, ends the pauses, and prints the budgets that it has opened. It returns
// an error if there is no pause. A pause that ends meanwhile is no error. After an error it goes on with the next pause.
func (o *operator) resumeAll(c *cobra.Command) error {
	all, closeAll, err := o.connectFleet(c.Context())
	if err != nil {
		return err
	}
	defer closeAll()

	var paused []fleet.Note
	if err := o.withTimeout(c.Context(), func(ctx context.Context) (err error) {
		paused, err = all.Pauses(ctx)
		return err
	}); err != nil {
		return err
	}

	if len(paused) == 0 {
		return &exit{exitConflict, errors.New("no operator has paused a budget")}
	}

	var now []string
	for i := range paused {
		now = append(now, fmt.Sprintf("%s: %s", paused[i].Budget, strings.Join(noteWords(&paused[i], time.Until(paused[i].Until)), "")))
	}

	question := fmt.Sprintf("%s\nEnd %s?", strings.Join(now, "\n"), stat.Count(len(paused), "pause", "pauses"))
	if err := o.confirm(c, question); err != nil {
		return err
	}

	done := resumedAll{Version: outputVersion, Act: "resume", Budgets: []string{}}
	var failed []error
	for _, note := range paused {
		// Each pause has a time limit of its own, however many pauses there are.
		err := o.withTimeout(c.Context(), func(ctx context.Context) error {
			t, err := o.find(ctx, all, note.Budget)
			if err != nil {
				return err
			}
			return all.Resume(ctx, t, o.name(), o.reason)
		})

		var notPaused *fleet.NotPausedError
		switch {
		case errors.As(err, &notPaused) && notPaused.Closed == 0: // the pause has ended meanwhile
		case err != nil:
			failed = append(failed, err)
		default:
			done.Budgets = append(done.Budgets, note.Budget)
		}
	}

	printed, err := printJSON(c, done)
	for _, name := range done.Budgets {
		if !printed {
			fmt.Fprintf(c.OutOrStdout(), "%s is open\n", name)
		}
	}

	return errors.Join(append(failed, err)...)
}

// newReset returns the command reset, which opens a budget whatever closed it.
func newReset() *cobra.Command {
	var o operator
	c := &cobra.Command{
		Use:     "reset POLICY|BUDGET",
		Example: `  throttle reset shop/f32021364bac --reason "the upstream has lifted the ban"`,
		Short:   "Open a budget whatever closed it, and forget its bans",
		Long: `Reset opens a budget even if its upstream closed it. It forgets how often a ban was
repeated, and the learned ceiling. Starts stay counted.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.act(c, args[0], "Open it, whatever closed it?", actResult{Act: "reset"}, func(ctx context.Context, all *fleet.Fleet, t fleet.Target) error {
				return all.Reset(ctx, t, o.name(), o.reason)
			})
		},
	}

	o.addBudgetFlags(c, auditHasIt)
	return c
}

// newSetUsed returns the command set-used, which corrects the count of a budget.
func newSetUsed() *cobra.Command {
	var o operator
	var to string
	c := &cobra.Command{
		Use:     "set-used POLICY|BUDGET",
		Example: `  throttle set-used shop --to 40 --reason "the upstream counts 40"`,
		Short:   "Set how much of its window a budget has used, where the count is wrong",
		Long: `Set-used corrects the count of a budget for the whole fleet, if the upstream reports a
different count: after a loss of data, or because a foreign program has used the account.
With a lower count, waiting callers start as soon as there is room. With a higher count,
booked starts that no longer fit are booked anew. Sliding, fixed and calendar windows have
a count, which status prints. Further limits have none. The count is at most the limit: at
the limit no request starts. Starts booked for later stay booked and are not included.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			used, wrong := usedOf(to)

			// Report a wrong number together with a wrong budget.
			o.check = func(t fleet.Target, missing error) error {
				if wrong == nil && missing == nil {
					return t.CheckUsed(used)
				}
				return errors.Join(wrong, missing)
			}

			change := &fleet.Change{After: used}
			return o.act(c, args[0], fmt.Sprintf("Set what is used to %d?", used), actResult{Act: "set-used", Used: change},
				func(ctx context.Context, all *fleet.Fleet, t fleet.Target) (err error) {
					change.Before, err = all.SetUsed(ctx, t, used, o.name(), o.reason)
					return err
				})
		},
	}

	o.addBudgetFlags(c, auditHasIt)
	c.Flags().StringVar(&to, "to", "", "correct count, from 0 to the limit; required")
	return c
}

// usedOf parses --to: a whole number from 0 on.
func usedOf(text string) (int, error) {
	if text == "" {
		return 0, errors.New("--to: say how much is used, from 0 to the limit")
	}
	used, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("--to: %q is no whole number from 0 to the limit", text)
	case used < 0:
		return 0, fmt.Errorf("--to: %d is less than nothing", used)
	}
	return used, nil
}

// An auditResult is the JSON of audit.
type auditResult struct {
	Version   int         `json:"version"`
	Acts      []fleet.Act `json:"acts"`
	Illegible int         `json:"illegible"` // number of entries that could not be parsed
}

// newAudit returns the command audit, which lists the acts of operators.
func newAudit() *cobra.Command {
	var at server
	var most int
	c := &cobra.Command{
		Use: "audit",
		Example: `  throttle audit
  throttle audit --json`,
		Short: "Show what operators did: when, who, what and why",
		Args:  argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				acts, illegible, err := all.Audit(ctx, most)
				if err != nil {
					return err
				}

				return output(c, auditResult{outputVersion, acts, illegible}, func() error {
					err := printActs(c, acts)
					leftOut(c, illegible)
					return err
				})
			})
		},
	}

	at.addFlags(c)
	c.Flags().IntVarP(&most, "number", "n", 20, "maximum number of acts, the latest first")
	return c
}

// printActs writes acts of operators as a table, one row each.
func printActs(c *cobra.Command, acts []fleet.Act) error {
	t := table{titles: []string{"WHEN", "WHO", "ACT", "WHAT", "REASON"}}
	for _, a := range acts {
		did := a.Act
		if a.For.Duration > 0 {
			did += " for " + brief(a.For.Duration)
		}
		if a.Used != nil {
			did += fmt.Sprintf(" from %d to %d", a.Used.Before, a.Used.After)
		}
		if a.Failed {
			did += ", failed"
		}

		what := a.What
		if a.Number > 0 {
			what = fmt.Sprintf("number %d (%s)", a.Number, a.What)
		}

		t.rows = append(t.rows, []string{a.At.Format(time.RFC3339), a.By, did, what, a.Reason})
	}

	return t.print(c.OutOrStdout())
}
