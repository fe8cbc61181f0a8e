package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/internal/svg"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/spf13/cobra"
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

// newPlan returns the command plan, which computes how long a job takes under the limits of a file.
func newPlan() *cobra.Command {
	o := new(planOptions)
	c := &cobra.Command{
		Use:     "plan FILE",
		Example: `  throttle plan policies.yaml -n 100000 --nodes 4 --workers 20 -r "GET https://api.example.com/orders"`,
		Short:   "Compute how long a job takes under the limits of a file, and which limit binds",
		Long: `Plan computes how long a job takes under the limits of a file, and which limit
binds at which time. --requests, --nodes and --workers describe the job. Plan runs
the engine of the library in virtual time. The result is exact if the latency is
right and the budgets are unused at the beginning. Each request costs what the
file charges before the answer arrives. Plan does not foresee refusals.

Describe the requests with -r, or line by line in a file with --mix: ` + mixForm + `.
By default they are the tests of the file. With --within it exits with 1 if the
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
	flags.IntVarP(&o.job.Requests, "requests", "n", 1000, "number of requests of the job")
	flags.StringArrayVarP(&o.requests, "request", "r", nil, "kind of request, "+mixForm+"; may be repeated")
	flags.StringVar(&o.mix, "mix", "", "read kinds of requests from this file, one a line; - for stdin")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, `header field of these requests, such as "X-App: a"; may be repeated`)
	flags.IntVar(&o.job.Nodes, "nodes", 1, "number of programs that send requests")
	flags.IntVar(&o.job.Workers, "workers", 10, "number of requests that each program sends in parallel")
	flags.DurationVar(&o.job.Latency, "latency", 100*time.Millisecond, "time from sending a request to its answer")
	flags.DurationVar(&o.job.HandOver, "hand-over", handOver, "time that Redis takes to hand a slot to the next request, for limits in flight")
	flags.DurationVar(&o.within, "within", 0, "exit with 1 if the job takes longer than this")
	flags.StringVar(&o.at, "at", "", "time at which the job begins, such as 2026-11-23T08:00:00Z, for calendar windows (default now)")
	flags.StringVar(&o.svg, "svg", "", "draw the chart into this file")

	return c
}

// run plans the job of the flags under the limits of f, draws the chart into --svg, and prints the result. It returns
// exitFound if a request can never start, or if the job does not fit into --within.
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
	// A request that can never start is a finding about the file.
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

	err = output(c, p, func() error { return p.print(c) })
	if err == nil && !p.Fits {
		err = &exit{code: exitFound}
	}

	return err
}

// handOver is the default of --hand-over: two calls of Redis and a message. 2
// ms was measured with a near Redis on an idle machine; with twenty programs on
// two cores it was 7 to 13 ms.
const handOver = 2 * time.Millisecond

// mostWorkers and mostRequests bound the simulation, so that a zero too many
// does not run for hours.
const (
	mostWorkers  = 1_000_000
	mostRequests = 1_000_000_000
)

// check returns the first mistake in the numbers and times of the flags.
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

// A planned is the JSON of plan. Times are in milliseconds.
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
	Fits      bool         `json:"fits"` // the job ends within --within; true without --within
	Waits     waits        `json:"waits"`
	Unmatched int          `json:"unmatched"` // requests that match no policy
	Phases    []phase      `json:"phases"`
	Policies  []usedPolicy `json:"policies"`
	Chart     chart        `json:"chart"`

	took, within, latency time.Duration // for the text
}

// waits summarize how long requests were held.
type waits struct {
	Held int   `json:"held"` // number of requests held
	P50  int64 `json:"p50_ms"`
	P99  int64 `json:"p99_ms"`
	Max  int64 `json:"max_ms"`

	all *simulation.Durations // also of requests that were not held
}

// newWaits summarizes durations.
func newWaits(d *simulation.Durations) waits {
	return waits{d.Positive(), d.Quantile(0.5).Milliseconds(), d.Quantile(0.99).Milliseconds(), d.Max.Milliseconds(), d}
}

// drawing returns the chart of a plan as SVG.
func (p *planned) drawing() string {
	title := fmt.Sprintf("%s take %s", stat.Count(p.Requests, "request", "requests"), brief(p.took))
	note := fmt.Sprintf("%s with %s each, %g ms a request", stat.Count(p.Nodes, "node", "nodes"), stat.Count(p.Workers, "worker", "workers"), float64(p.latency)/float64(time.Millisecond))
	return p.Chart.drawing(title, note)
}

// A phase is a time with one limiting policy, or none.
type phase struct {
	From   int64  `json:"from_ms"`
	To     int64  `json:"to_ms"`
	Policy string `json:"policy"`            // "" if no limit binds: more workers would help
	InTurn string `json:"in_turn,omitempty"` // without a limiting policy: the policy that binds for short times in between

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
	Binds    float64 `json:"binds"` // share of the time in which it limits
	Shadow   bool    `json:"shadow,omitempty"`
	Would    *waits  `json:"would_wait,omitempty"` // additional waits under a shadow policy, nil otherwise
}

// newPlanned returns the output for a job and its result. within is --within, or 0.
func newPlanned(j *simulation.Job, r *simulation.Result, within time.Duration) *planned {
	p := &planned{
		Version: outputVersion, Requests: j.Requests, Nodes: j.Nodes, Workers: j.Workers, Latency: j.Latency.Milliseconds(), HandOver: j.HandOver.Milliseconds(),
		Begin: j.Begin.UTC(), Took: r.Took.Milliseconds(), Within: within.Milliseconds(), Fits: within == 0 || r.Took <= within,
		Waits: newWaits(&r.Waits), Unmatched: r.Unmatched, Phases: []phase{}, Policies: []usedPolicy{}, took: r.Took, within: within, latency: j.Latency,
	}

	if r.Took > 0 {
		p.Rate = float64(j.Requests) / r.Took.Seconds()
	}

	for i := range r.Policies {
		u := &r.Policies[i]
		entry := usedPolicy{Policy: u.Policy.Name, Limit: u.Policy.Limit.String(), Requests: u.Requests, Cost: u.Cost, Waits: newWaits(&u.Waits), Shadow: u.Policy.Shadow}

		// A shadow limit holds nothing. Show the waits that it would have added.
		if entry.Shadow {
			would := newWaits(&u.Over)
			entry.Would = &would
		}

		p.Policies = append(p.Policies, entry)
	}

	// The rows of the timeline are the policies, by index.
	for _, ph := range r.Timeline.Phases(r.Took) {
		entry := phase{From: ph.From.Milliseconds(), To: ph.To.Milliseconds(), from: ph.From, to: ph.To}
		if ph.Binds >= 0 {
			entry.Policy, entry.limit = p.Policies[ph.Binds].Policy, p.Policies[ph.Binds].Limit
		} else if ph.InTurn >= 0 {
			entry.InTurn, entry.limit = p.Policies[ph.InTurn].Policy, p.Policies[ph.InTurn].Limit
		}

		p.Phases = append(p.Phases, entry)
	}

	for i, bound := range r.Timeline.Bound(0, r.Took) {
		// A job that took no time must not divide by zero.
		p.Policies[i].Binds = bound.Seconds() / max(r.Took, 1).Seconds()
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
		stat.Count(p.Nodes, "node", "nodes"), stat.Count(p.Workers, "worker", "workers"), p.latency)
	if !p.Fits {
		fmt.Fprintf(out, "that does not fit into %s\n", p.within)
	}

	fmt.Fprintln(out, p.Waits.sentence("waited"))
	if p.Unmatched > 0 {
		fmt.Fprintf(out, "%s: they pass\n", stat.Count(p.Unmatched, "request matches no policy", "requests match no policy"))
	}

	binds := table{titles: []string{"FROM", "TO", "WHAT BINDS"}}
	for i, f := range p.Phases {
		// The text is for people. --json has all phases.
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

// binding says what limits the phase.
func (f *phase) binding() string {
	switch {
	case f.Policy != "":
		return f.Policy + ", " + f.limit
	case f.InTurn != "":
		return f.InTurn + ", " + f.limit + ", in turn with the workers"
	}
	return "no limit: the workers are busy"
}

// sentence says how many requests waited, and for how long. verb is such as "waited". The quantiles are over all requests of
// w.all.
func (w *waits) sentence(verb string) string {
	if w.Held == 0 {
		return "none " + verb
	}
	base := "all requests"
	if w.Held == w.all.N {
		base = "them"
	}
	return fmt.Sprintf("%d %s: half of %s for %s or less, 99 %% for %s, the longest for %s", w.Held, verb, base, brief(w.all.Quantile(0.5)), brief(w.all.Quantile(0.99)), brief(w.all.Max))
}

// mixForm is the form of a line of a mix.
const mixForm = `"METHOD URL [WEIGHT] [LATENCY]", such as "GET https://api.example.com/v1/orders 3 250ms"`

// readMix returns the mix of a job: the requests of -r, and of the file of --mix if path is not "". By default it has the
// requests of the tests of f. All get the headers. Without any request readMix returns an error.
func readMix(c *cobra.Command, requests []string, path string, headers []string, f *policyfile.File) (mix []simulation.Part, err error) {
	add := func(where, line string) error {
		p, err := parsePart(line, headers)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}

		mix = append(mix, p)
		return nil
	}

	for _, line := range requests {
		if err := add("--request", line); err != nil {
			return nil, err
		}
	}

	if path != "" {
		if err := eachMixLine(c, path, add); err != nil {
			return nil, err
		}
	}

	if len(mix) == 0 {
		// By default the job has the requests of the tests, each as often as the others.
		for _, t := range f.Tests {
			mix = append(mix, simulation.Part{Request: t.Request(), Weight: 1})
		}
	}

	if len(mix) == 0 {
		return nil, fmt.Errorf("there are no requests: name some with -r %s, in a file with --mix, or in the tests of the file", mixForm)
	}

	return mix, nil
}

// eachMixLine calls add for each line of a mix file, with the place and the text of the line, until add returns an error. It skips
// empty lines, and comments, which begin with #.
func eachMixLine(c *cobra.Command, path string, add func(where, line string) error) error {
	in, err := openInput(c, path)
	if err != nil {
		return err
	}
	defer in.Close()

	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := add(fmt.Sprintf("%s:%d", path, n), line); err != nil {
			return err
		}
	}

	return lines.Err()
}

// parsePart parses one line of a mix, in the form of mixForm. The request gets the headers. Its weight is 1 by default.
func parsePart(line string, headers []string) (p simulation.Part, err error) {
	words := strings.Fields(line)
	p.Weight = 1
	if len(words) < 2 || len(words) > 4 {
		return p, fmt.Errorf("%q is not %s", line, mixForm)
	}

	for i, word := range words[2:] {
		// A weight is a bare number, and a latency has a unit. Text that is neither reads as 0.
		n, _ := strconv.Atoi(word)
		d, _ := time.ParseDuration(word)
		isWeight := i == 0 && n > 0 && n <= 1_000_000
		isLatency := d > 0 && p.Latency == 0
		switch {
		case isWeight:
			p.Weight = n
		case isLatency:
			p.Latency = d
		default:
			return p, fmt.Errorf("%q: %q is neither a weight from 1 to 1000000 nor a latency such as 250ms", line, word)
		}
	}

	p.Request, err = newRequest(words[0], words[1], headers)
	return p, err
}

// A chart shows how many requests start in each part of a job, and which policy limits them.
type chart struct {
	Width  int64    `json:"width_ms"` // of a column, 0 for less than a millisecond
	Starts []int    `json:"starts"`
	Binds  []string `json:"binds"` // a policy, or ""

	title    string
	policies []string // that limit in a column, for the legend
	rates    []float64
	width    time.Duration
	end      time.Duration
}

// Size of a chart in a terminal.
const (
	chartColumns = 60
	chartRows    = 8
)

// newChart returns the chart of a timeline up to end. uses has the policies of the timeline's rows.
func newChart(l *simulation.Timeline, end time.Duration, uses []simulation.Use) chart {
	columns := l.Columns(end, chartColumns)
	c := chart{Width: columns.Width.Milliseconds(), width: columns.Width, end: end, Starts: []int{}, Binds: []string{}, title: "starts a second"}

	bound := make(map[string]bool) // policies that bind in some column
	for i := range columns.Bins {
		b := &columns.Bins[i]
		binds := ""
		if row := b.Binds(); row >= 0 {
			binds = uses[row].Policy.Name
		}

		bound[binds] = true
		c.Starts, c.Binds = append(c.Starts, b.Starts), append(c.Binds, binds)
		c.rates = append(c.rates, float64(b.Starts)/columns.Width.Seconds())
	}

	// The legend names only these policies.
	for i := range uses {
		if name := uses[i].Policy.Name; bound[name] {
			c.policies = append(c.policies, name)
		}
	}

	return c
}

// ceiling returns the top of the scale: the least number that no rate exceeds and that is 1, 2 or 5 times a power of ten, or 1
// without starts.
func (c *chart) ceiling() float64 {
	most := slices.Max(append([]float64{0}, c.rates...))
	if most == 0 {
		return 1
	}

	power := math.Pow(10, math.Floor(math.Log10(most))) // of ten, not above most
	for _, k := range []float64{1, 2, 5} {
		if most <= k*power {
			return k * power
		}
	}

	return 10 * power
}

// mark returns the letter of the policy that binds a column, or a dot if none does. The 27th policy has the first letter again.
func (c *chart) mark(binds string) string {
	if i := slices.Index(c.policies, binds); i >= 0 {
		return string(rune('a' + i%26))
	}
	return "."
}

// eighths are the parts of a character, from below.
var eighths = []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}

// text draws the chart for a terminal.
func (c *chart) text() string {
	var w strings.Builder
	ceiling := c.ceiling()
	scale := fmt.Sprintf("%g", ceiling)
	pad := strings.Repeat(" ", len(scale))
	fmt.Fprintf(&w, "%s\n", c.title)

	for row := chartRows - 1; row >= 0; row-- {
		label := pad
		if row == chartRows-1 {
			label = scale
		}

		fmt.Fprintf(&w, "%s │", label)
		line := ""
		for _, perSecond := range c.rates {
			// A row has eight levels: show the levels of the column from the bottom of this row on.
			levels := math.Round(perSecond/ceiling*chartRows*8) - float64(8*row)
			line += eighths[int(min(8, max(0, levels)))]
		}

		fmt.Fprintf(&w, "%s\n", strings.TrimRight(line, " "))
	}

	// The axis, and below each column the mark of its policy.
	fmt.Fprintf(&w, "%*s └%s\n%s  ", len(scale), "0", strings.Repeat("─", len(c.rates)), pad)
	for _, b := range c.Binds {
		w.WriteString(c.mark(b))
	}

	// A narrow chart must still have room for both labels.
	end := brief(c.end)
	fmt.Fprintf(&w, "\n%s  0s%*s\n", pad, max(len(c.rates)-2, len(end)+1), end)

	for _, p := range c.policies {
		fmt.Fprintf(&w, "%s  %s binds: %s\n", pad, c.mark(p), p)
	}

	return w.String()
}

// Sizes of a drawing, in pixels.
const (
	drawingWidth  = 880
	drawingHeight = 220 // of the columns
	drawingLeft   = 64
	drawingTop    = 72
	drawingRow    = 22 // of the legend
)

// drawingRules has colours that colour-blind readers can distinguish.
const drawingRules = `  .axis { stroke: #8c959f }
  .p { fill: #8c959f }
  .p0 { fill: #0072b2 } .p1 { fill: #e69f00 } .p2 { fill: #009e73 }
  .p3 { fill: #cc79a7 } .p4 { fill: #56b4e9 } .p5 { fill: #d55e00 }
`

// drawingColours is the number of colours.
const drawingColours = 6

// drawing returns the chart as SVG, with a title and a note above it and a legend below it.
func (c *chart) drawing(title, note string) string {
	const right, bottom = drawingWidth - svg.Margin, drawingTop + drawingHeight

	// The first entry, "", stands for columns in which no policy binds.
	legend := append([]string{""}, c.policies...)
	height := bottom + 2*svg.Margin + drawingRow*len(legend)
	d := svg.New(drawingWidth, float64(height), title, note+"; "+c.title, drawingRules, "")
	ceiling := c.ceiling()

	width := float64(right-drawingLeft) / float64(max(1, len(c.rates))) // of a column
	for i, perSecond := range c.rates {
		tall := perSecond / ceiling * drawingHeight
		d.Rect(c.colour(c.Binds[i]), svg.Box{X: drawingLeft + float64(i)*width, Y: bottom - tall, Width: width, Height: tall})
	}

	d.Line("axis", drawingLeft, drawingTop, drawingLeft, bottom)
	d.Line("axis", drawingLeft, bottom, right, bottom)
	d.Text("note", svg.Margin, drawingTop+10, fmt.Sprintf("%g", ceiling))
	d.Text("note", svg.Margin, bottom, "0")
	d.Text("note", drawingLeft, bottom+18, "0s")
	end := brief(c.end)

	// The text ends at the right: a character is about seven pixels wide.
	d.Text("note", float64(right-7*len(end)), bottom+18, end)

	for i, p := range legend {
		y := float64(bottom + svg.Margin + drawingRow*i + 18)
		d.Rect(c.colour(p), svg.Box{X: drawingLeft, Y: y - 10, Width: 12, Height: 12})
		text := p + " binds"
		if p == "" {
			text = "no limit binds"
		}

		d.Text("note", drawingLeft+20, y, text)
	}

	return d.String()
}

// colour returns the class of the limiting policy, or of none. More policies than colours share them in turn.
func (c *chart) colour(binds string) string {
	if i := slices.Index(c.policies, binds); i >= 0 {
		return fmt.Sprintf("p%d", i%drawingColours)
	}
	return "p"
}
