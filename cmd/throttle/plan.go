package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
)

// planOptions are the flags of plan.
type planOptions struct {
	job      simulation.Job
	requests []string
	mix      string
	headers  []string
	within   time.Duration
	at       string
	svg      string
}

func newPlan() *cobra.Command {
	o := new(planOptions)
	c := &cobra.Command{
		Use:     "plan FILE",
		Example: `  throttle plan policies.yaml -n 100000 --nodes 4 --workers 20 -r "GET https://api.example.com/orders"`,
		Short:   "Say how long a job takes under the limits of a file, and which limit binds when",
		Long: `Plan says how long a job of so many requests takes, if a fleet of nodes sends
them with so many workers each, and which limit binds when. It runs the engine
of the library in virtual time, so what it says is exact, if the latency is
right and the budgets are unused at the beginning. What a request costs is what
the file says before the answer is there; refusals are not foreseen.

A mix of requests is named with -r, or line by line in a file: ` + mixForm + `.
Without one it is the tests of the file. With --within it exits with 1 if the
job takes longer.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := loadInput(c, args[0])
			if err != nil {
				return err
			}
			return o.run(c, f)
		},
	}

	flags := c.Flags()
	flags.IntVarP(&o.job.Requests, "requests", "n", 1000, "how many requests the job has")
	flags.StringArrayVarP(&o.requests, "request", "r", nil, "a kind of request, "+mixForm+"; may be repeated")
	flags.StringVar(&o.mix, "mix", "", "read kinds of requests from this file, one a line; - for stdin")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, `a field of these requests, such as "X-App: a"; may be repeated`)
	flags.IntVar(&o.job.Nodes, "nodes", 1, "how many programs send")
	flags.IntVar(&o.job.Workers, "workers", 10, "how many requests each of them sends side by side")
	flags.DurationVar(&o.job.Latency, "latency", 100*time.Millisecond, "how long the upstream takes for a request")
	flags.DurationVar(&o.job.HandOver, "hand-over", handOver, "how long Redis takes to hand a slot from one request to the next, for limits in flight")
	flags.DurationVar(&o.within, "within", 0, "exit with 1 if the job takes longer than this")
	flags.StringVar(&o.at, "at", "", "when the job begins, such as 2026-11-23T08:00:00Z, for windows of the calendar (default now)")
	flags.StringVar(&o.svg, "svg", "", "draw the chart into this file")

	return c
}

// run plans the job and prints what it found.
func (o *planOptions) run(c *cobra.Command, f *policyfile.File) (err error) {
	j := &o.job
	j.Policies, j.Begin = f.Policies, time.Now()

	if o.at != "" {
		if j.Begin, err = time.Parse(time.RFC3339, o.at); err != nil {
			return fmt.Errorf("--at: %q is not a time such as 2026-11-23T08:00:00Z", o.at)
		}
	}

	if err := o.check(); err != nil {
		return err
	}
	if j.Mix, err = readMix(c, o.requests, o.mix, o.headers, f); err != nil {
		return err
	}

	shown := newProgress(c)
	j.Progress = shown.show
	r, err := j.Run(c.Context())
	shown.end()

	var never *simulation.Impossible
	switch {
	case errors.As(err, &never):
		return &exit{exitFound, never}
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return &exit{exitUsage, err}
	}

	p := newPlanned(j, r, o.within)
	if o.svg != "" {
		if err := os.WriteFile(o.svg, []byte(p.drawing()), 0o644); err != nil {
			return err
		}
	}

	done, err := printJSON(c, p)
	if !done {
		err = p.print(c)
	}
	if err == nil && !p.Fits {
		err = &exit{code: exitFound}
	}

	return err
}

// handOver is the default of --hand-over. It takes two calls of Redis and a message. It was so long
// with a Redis that is near, on a machine with nothing else to do; with twenty programs on two cores
// it was 7 to 13 ms.
const handOver = 2 * time.Millisecond

// mostWorkers and mostRequests bound what is simulated, so that a mistake with a zero ends
// soon.
const (
	mostWorkers  = 1_000_000
	mostRequests = 1_000_000_000
)

// check returns what is wrong with the flags.
func (o *planOptions) check() error {
	j := &o.job
	switch {
	case j.Requests < 1 || j.Requests > mostRequests:
		return fmt.Errorf("--requests: %d is not from 1 to %d", j.Requests, mostRequests)
	case j.Nodes < 1 || j.Workers < 1 || j.Nodes > mostWorkers/j.Workers:
		return fmt.Errorf("--nodes, --workers: %d × %d is not from 1 to %d", j.Nodes, j.Workers, mostWorkers)
	case j.Latency < 0 || j.HandOver < 0 || o.within < 0:
		return errors.New("--latency, --hand-over, --within: a time is not less than 0")
	}
	return nil
}

// A planned is what plan prints as JSON. Times are in milliseconds.
type planned struct {
	Version   int          `json:"version"`
	Requests  int          `json:"requests"`
	Nodes     int          `json:"nodes"`
	Workers   int          `json:"workers"`
	Latency   int64        `json:"latency_ms"`
	HandOver  int64        `json:"hand_over_ms"`
	Begin     time.Time    `json:"begin"`
	Took      int64        `json:"took_ms"`
	Rate      float64      `json:"per_second"`
	Within    int64        `json:"within_ms,omitempty"`
	Fits      bool         `json:"fits"` // into --within; true without it
	Waits     waits        `json:"waits"`
	Unmatched int          `json:"unmatched"` // requests that match no policy
	Phases    []phase      `json:"phases"`
	Policies  []usedPolicy `json:"policies"`
	Chart     chart        `json:"chart"`

	took, within time.Duration
}

// waits are how long requests were held.
type waits struct {
	Held int   `json:"held"` // how many requests were held at all
	P50  int64 `json:"p50_ms"`
	P99  int64 `json:"p99_ms"`
	Max  int64 `json:"max_ms"`

	all *simulation.Durations
}

func newWaits(d *simulation.Durations) waits {
	return waits{d.Positive(), d.Quantile(0.5).Milliseconds(), d.Quantile(0.99).Milliseconds(), d.Max.Milliseconds(), d}
}

// drawing returns the chart of a plan as SVG.
func (p *planned) drawing() string {
	title := fmt.Sprintf("%s take %s", stat.Count(p.Requests, "request", "requests"), brief(p.took))
	note := fmt.Sprintf("%s with %s each, %d ms a request", stat.Count(p.Nodes, "node", "nodes"), stat.Count(p.Workers, "worker", "workers"), p.Latency)
	return p.Chart.drawing(title, note)
}

// A phase is a time in which one limit binds, or none.
type phase struct {
	From   int64  `json:"from_ms"`
	To     int64  `json:"to_ms"`
	Policy string `json:"policy"`            // "": no limit does, and more workers would help
	InTurn string `json:"in_turn,omitempty"` // if no limit does: the policy that binds for short times between

	from, to time.Duration
	limit    string // of Policy, or of InTurn
}

// A usedPolicy is one policy that the mix matches.
type usedPolicy struct {
	Policy   string  `json:"policy"`
	Limit    string  `json:"limit"`
	Requests int     `json:"requests"`
	Cost     int     `json:"cost"` // of all requests
	Waits    waits   `json:"waits"`
	Binds    float64 `json:"binds"` // for what share of the time
	Shadow   bool    `json:"shadow,omitempty"`
	Would    *waits  `json:"would_wait,omitempty"` // how much longer requests would wait; nil: the policy is no shadow
}

// newPlanned returns what plan prints of a job and its result.
func newPlanned(j *simulation.Job, r *simulation.Result, within time.Duration) *planned {
	p := &planned{
		Version: outputVersion, Requests: j.Requests, Nodes: j.Nodes, Workers: j.Workers, Latency: j.Latency.Milliseconds(), HandOver: j.HandOver.Milliseconds(),
		Begin: j.Begin.UTC(), Took: r.Took.Milliseconds(), Within: within.Milliseconds(), Fits: within == 0 || r.Took <= within,
		Waits: newWaits(&r.Waits), Unmatched: r.Unmatched, Phases: []phase{}, Policies: []usedPolicy{}, took: r.Took, within: within,
	}

	if r.Took > 0 {
		p.Rate = float64(j.Requests) / r.Took.Seconds()
	}

	for i := range r.Policies {
		u := &r.Policies[i]
		entry := usedPolicy{Policy: u.Policy.Name, Limit: u.Policy.Limit.String(), Requests: u.Requests, Cost: u.Cost, Waits: newWaits(&u.Waits), Shadow: u.Policy.Shadow}
		if entry.Shadow {
			would := newWaits(&u.Over)
			entry.Would = &would
		}

		p.Policies = append(p.Policies, entry)
	}

	for _, f := range r.Timeline.Phases(r.Took) {
		entry := phase{From: f.From.Milliseconds(), To: f.To.Milliseconds(), from: f.From, to: f.To}
		if f.Binds >= 0 {
			entry.Policy, entry.limit = p.Policies[f.Binds].Policy, p.Policies[f.Binds].Limit
		} else if f.InTurn >= 0 {
			entry.InTurn, entry.limit = p.Policies[f.InTurn].Policy, p.Policies[f.InTurn].Limit
		}

		p.Phases = append(p.Phases, entry)
	}

	for i, d := range r.Timeline.Bound(0, r.Took) {
		p.Policies[i].Binds = d.Seconds() / max(r.Took, 1).Seconds()
	}

	p.Chart = newChart(r.Timeline, r.Took, r.Policies)
	return p
}

// mostPhases is how many phases are printed.
const mostPhases = 20

// print prints the plan as text.
func (p *planned) print(c *cobra.Command) error {
	out := c.OutOrStdout()
	fmt.Fprintf(out, "%s take %s: %.3g a second, by %s with %s each, %s a request\n", stat.Count(p.Requests, "request", "requests"), brief(p.took), p.Rate,
		stat.Count(p.Nodes, "node", "nodes"), stat.Count(p.Workers, "worker", "workers"), time.Duration(p.Latency)*time.Millisecond)
	if !p.Fits {
		fmt.Fprintf(out, "that does not fit into %s\n", p.within)
	}

	fmt.Fprintln(out, p.Waits.sentence("waited"))
	if p.Unmatched > 0 {
		fmt.Fprintf(out, "%s: they pass\n", stat.Count(p.Unmatched, "request matches no policy", "requests match no policy"))
	}

	binds := table{titles: []string{"FROM", "TO", "WHAT BINDS"}}
	for i, f := range p.Phases {
		if i == mostPhases {
			binds.add("…", "", fmt.Sprintf("%d more: see --json", len(p.Phases)-i))
			break
		}
		binds.add(brief(f.from), brief(f.to), f.binding())
	}

	policies := table{titles: []string{"POLICY", "LIMIT", "REQUESTS", "COST", "HELD", "P99", "LONGEST", "BINDS"}}
	for _, u := range p.Policies {
		if u.Shadow {
			policies.add(u.Policy, u.Limit, u.Requests, u.Cost, "only counts: "+u.Would.sentence("would have waited longer"))
			continue
		}
		policies.add(u.Policy, u.Limit, u.Requests, u.Cost, u.Waits.Held,
			brief(u.Waits.all.Quantile(0.99)), brief(u.Waits.all.Max), fmt.Sprintf("%.0f %%", 100*u.Binds))
	}

	_, err := fmt.Fprint(out, "\n", binds.text(), "\n", policies.text(), "\n", p.Chart.text())
	return err
}

// binding says in words what binds in the phase.
func (f *phase) binding() string {
	switch {
	case f.Policy != "":
		return f.Policy + ", " + f.limit
	case f.InTurn != "":
		return f.InTurn + ", " + f.limit + ", in turn with the workers"
	}
	return "no limit: the workers are busy"
}

// sentence says how many requests waited, and how long. held is the verb, such as "waited".
func (w *waits) sentence(held string) string {
	if w.Held == 0 {
		return "none " + held
	}
	base := "all requests"
	if w.Held == w.all.N {
		base = "them"
	}
	return fmt.Sprintf("%d %s: half of %s for %s or less, 99 %% for %s, the longest for %s", w.Held, held, base, brief(w.all.Quantile(0.5)), brief(w.all.Quantile(0.99)), brief(w.all.Max))
}
