package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/accesslog"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/spf13/cobra"
)

// simulateOptions are the flags of simulate.
type simulateOptions struct {
	base    string
	headers []string
	maxWait maxWaitFlag
	latency time.Duration
	window  time.Duration
	svg     string
}

// newSimulate returns the command simulate, which replays access logs against a file of policies.
func newSimulate() *cobra.Command {
	o := new(simulateOptions)
	c := &cobra.Command{
		Use:     "simulate FILE LOG...",
		Example: `  throttle simulate policies.yaml access.log --url https://api.example.com`,
		Short:   "Replay access logs against a file, and count the requests that wait or are refused",
		Long: `Simulate replays the requests of access logs in virtual time, under the policies of
a file. It prints how many requests would have waited, how long and for which
limit, and how many would have been refused. It exits with 1 if a request would
have been refused.

Logs are in the Common or Combined Log Format of nginx and Apache, or CSV of time,
method and URL, plain or packed with gzip. - is stdin. Lines with a path only need
--url. Lines that cannot be read are counted and reported. If the times of a log
are whole seconds, its requests are spread evenly over each second.`,
		Args: argumentCount(2, manyArguments),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := loadInput(c, args[0])
			if err != nil {
				return err
			}
			return o.run(c, f, args[1:])
		},
	}

	flags := c.Flags()
	flags.StringVar(&o.base, "url", "", "base URL of requests whose line has a path only, such as https://api.example.com")
	flags.StringArrayVarP(&o.headers, "header", "H", nil, `header field of all requests, such as "X-App: a"; may be repeated`)
	o.maxWait = maxWaitFlag(30 * time.Second)
	flags.Var(&o.maxWait, "max-wait", "maximum wait of a request; \"forever\" refuses no request, \"none\" refuses each request that would wait")
	flags.DurationVar(&o.latency, "latency", 100*time.Millisecond, "time from sending a request to its answer, for limits in flight")
	flags.DurationVar(&o.window, "window", time.Minute, "sort lines by time that are out of order by no more than this")
	flags.StringVar(&o.svg, "svg", "", "draw the chart into this file")

	return c
}

// A maxWaitFlag is a [throttle.Config.MaxWait] that is never 0: a positive duration, [throttle.Forever] or
// [throttle.NoWait].
type maxWaitFlag time.Duration

// Set implements pflag.Value.
func (f *maxWaitFlag) Set(text string) error {
	switch text {
	case "forever":
		*f = maxWaitFlag(throttle.Forever)
		return nil
	case "none":
		*f = maxWaitFlag(throttle.NoWait)
		return nil
	}

	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("use more than 0, such as 30s, or forever, or none")
	}

	*f = maxWaitFlag(d)
	return nil
}

// String implements pflag.Value.
func (f *maxWaitFlag) String() string {
	switch d := time.Duration(*f); d {
	case throttle.Forever:
		return "forever"
	case throttle.NoWait:
		return "none"
	default:
		return d.String()
	}
}

// Type implements pflag.Value.
func (f *maxWaitFlag) Type() string { return "duration" }

// milliseconds returns the wait for JSON: 0 for forever, -1 for none, and otherwise at least 1.
func (f maxWaitFlag) milliseconds() int64 {
	switch d := time.Duration(f); d {
	case throttle.Forever:
		return 0
	case throttle.NoWait:
		return -1
	default:
		return max(1, d.Milliseconds())
	}
}

// mostSorted is how many lines are kept in memory for sorting.
const mostSorted = 100_000

// mostBroken is how many unreadable lines are printed.
const mostBroken = 10

// A simulated is the JSON of simulate. Times are in milliseconds.
type simulated struct {
	Version   int               `json:"version"`
	Requests  int               `json:"requests"`
	Begin     *time.Time        `json:"begin,omitempty"`
	End       *time.Time        `json:"end,omitempty"` // time of the last request
	MaxWait   int64             `json:"max_wait_ms"`   // 0 for unlimited, negative for no wait
	Waited    waits             `json:"waits"`         // of requests that waited and were sent
	Refused   int               `json:"refused"`
	Crowded   int               `json:"crowded,omitempty"`
	Unmatched int               `json:"unmatched"`
	Broken    int               `json:"broken"`
	Late      int               `json:"late"` // lines later than --window allows
	Lines     []brokenLine      `json:"broken_lines"`
	Policies  []simulatedPolicy `json:"policies"`
	Chart     chart             `json:"chart"`
}

// A brokenLine is an unreadable line.
type brokenLine struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// A simulatedPolicy is the effect that one policy would have had.
type simulatedPolicy struct {
	Policy   string `json:"policy"`
	Limit    string `json:"limit"`
	Requests int    `json:"requests"`
	Waits    waits  `json:"waits"` // of requests that it would have held
	Refused  int    `json:"refused"`
	Shadow   bool   `json:"shadow,omitempty"`
	Would    *waits `json:"would_wait,omitempty"` // additional waits under a shadow policy, nil otherwise
}

// A logReplay is a running replay of access logs.
type logReplay struct {
	simulated // results so far
	engine    simulation.Replay
	sorter    *accesslog.Sorter // sorts lines by time
	header    http.Header       // of all requests
	failed    error             // why sending stopped

	shown *progress
	size  int64 // bytes of all logs, 0 if unknown
	done  int64 // bytes read
}

// A countingReader counts bytes.
type countingReader struct {
	io.ReadCloser
	sum *int64
}

// Read implements [io.Reader].
func (r countingReader) Read(p []byte) (n int, err error) {
	n, err = r.ReadCloser.Read(p)
	*r.sum += int64(n)
	return n, err
}

// sizeOf returns the size of all logs, or 0 if the size of one is unknown.
func sizeOf(logs []string) (sum int64) {
	for _, log := range logs {
		info, err := os.Stat(log)

		// The size of a pipe is unknown, and so is the progress.
		if err != nil || !info.Mode().IsRegular() {
			return 0
		}
		sum += info.Size()
	}
	return sum
}

// run replays the logs under the policies of f, draws the chart into --svg, and prints the result. It returns exitFound if a
// request was refused, and an error if the logs have unreadable lines and no readable one.
func (o *simulateOptions) run(c *cobra.Command, f *policyfile.File, logs []string) error {
	base, err := o.check()
	if err != nil {
		return err
	}

	header, err := parseHeader(o.headers)
	if err != nil {
		return err
	}

	r := &logReplay{
		simulated: simulated{Version: outputVersion, MaxWait: o.maxWait.milliseconds(), Lines: []brokenLine{}, Policies: []simulatedPolicy{}},
		engine:    simulation.Replay{Policies: f.Policies, MaxWait: time.Duration(o.maxWait), Latency: o.latency},
		sorter:    accesslog.NewSorter(o.window, mostSorted), header: header,
		shown: newProgress(c), size: sizeOf(logs),
	}
	defer r.shown.end()

	send := func(e accesslog.Entry) { r.send(c.Context(), e) }
	for _, log := range logs {
		if err := r.read(c, log, base, send); err != nil {
			return err
		}
	}

	r.sorter.Flush(send)
	if r.failed != nil {
		return r.failed
	}

	replayed, err := r.engine.End(c.Context())
	if err != nil {
		return err
	}

	r.finish(replayed)

	// Clear the progress before the result is printed.
	r.shown.end()

	if o.svg != "" {
		note := fmt.Sprintf("%d waited, %d refused", r.Waited.Held, r.Refused)
		if err := os.WriteFile(o.svg, []byte(r.Chart.drawing(stat.Count(r.Requests, "request", "requests"), note)), 0o644); err != nil {
			return err
		}
	}

	err = output(c, &r.simulated, func() error { return r.print(c) })
	switch {
	case err != nil:
		return err
	case r.Requests == 0 && r.Broken > 0:
		return errors.New("no line of the log could be read")
	case r.Refused > 0:
		return &exit{code: exitFound}
	}

	return nil
}

// check checks the flags, and returns the base URL for lines with a path only, or nil without --url.
func (o *simulateOptions) check() (base *url.URL, err error) {
	if o.latency < 0 || o.window < 0 {
		return nil, errors.New("--latency, --window: a time is not less than 0")
	}
	if o.base == "" {
		return nil, nil
	}
	base, err = url.Parse(o.base)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("--url: %q is not a URL such as https://api.example.com", o.base)
	}

	hasPath := base.Path != "" && base.Path != "/"
	if hasPath || base.RawQuery != "" {
		return nil, fmt.Errorf("--url: the path of %q has no effect, because each line has its own: write %s://%s", o.base, base.Scheme, base.Host)
	}
	return base, nil
}

// read gives the requests of a log to the sorter, and notes unreadable lines. base completes lines with a path only. The sorter
// calls send in order of time, and keeps the latest requests. read returns an error of the log or of send, and after an interrupt.
func (r *logReplay) read(c *cobra.Command, path string, base *url.URL, send func(accesslog.Entry)) error {
	in, err := openInput(c, path)
	if err != nil {
		return err
	}
	defer in.Close()

	log, err := accesslog.NewReader(countingReader{in, &r.done}, base)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}

	for n := 0; ; n++ {
		// Look for an interrupt, and show the progress, once in 1,024 lines.
		if n%1024 == 0 {
			if c.Context().Err() != nil {
				return c.Context().Err()
			}
			if r.size > 0 {
				r.shown.show(float64(r.done) / float64(r.size))
			}
		}

		e, err := log.Next()
		var broken *accesslog.LineError
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &broken):
			r.Broken++

			// Count all broken lines, but quote only a few.
			if len(r.Lines) < mostBroken {
				r.Lines = append(r.Lines, brokenLine{path, broken.Line, broken.Text})
			}
			continue

		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}

		// Add may call send, which notes its error in r.failed.
		r.sorter.Add(e, send)
		if r.failed != nil {
			return r.failed
		}
	}
}

// send sends the request of a line to the engine, at the line's time, and notes the time in Begin and End. It notes an error in
// failed. After an error it does nothing.
func (r *logReplay) send(ctx context.Context, e accesslog.Entry) {
	if r.failed != nil {
		return
	}
	req := &http.Request{Method: e.Method, URL: e.URL, Host: e.URL.Host, Header: r.header, Body: http.NoBody}
	r.failed = r.engine.Send(ctx, req, e.Time)
	if r.failed != nil {
		return
	}
	at := e.Time.UTC()
	if r.Begin == nil {
		r.Begin = &at
	}
	r.End = &at
}

// finish copies the results of the engine into the output.
func (r *logReplay) finish(all *simulation.Replayed) {
	r.Requests, r.Waited, r.Refused, r.Crowded, r.Unmatched, r.Late = all.Requests, newWaits(&all.Waits), all.Refused, all.Crowded, all.Unmatched, r.sorter.Late
	for i := range all.Policies {
		u := &all.Policies[i]
		p := simulatedPolicy{
			Policy: u.Policy.Name, Limit: u.Policy.Limit.String(), Requests: u.Requests, Waits: newWaits(&u.Waits),
			Refused: u.Refused, Shadow: u.Policy.Shadow,
		}

		if p.Shadow {
			would := newWaits(&u.Over)
			p.Would = &would
		}

		r.Policies = append(r.Policies, p)
	}

	r.Chart = newChart(all.Timeline, all.Took, all.Policies)
}

// print prints the result as text on stdout, and unreadable and late lines on stderr.
func (r *logReplay) print(c *cobra.Command) error {
	talk, out := c.ErrOrStderr(), c.OutOrStdout()
	for _, l := range r.Lines {
		fmt.Fprintf(talk, "%s:%d: %s\n", l.File, l.Line, l.Text)
	}

	switch {
	// Lines quotes only the first broken lines.
	case r.Broken > len(r.Lines):
		fmt.Fprintf(talk, "%d lines could not be read, %d of them are above\n", r.Broken, len(r.Lines))
	case r.Broken > 0:
		fmt.Fprintf(talk, "%s\n", stat.Count(r.Broken, "line could not be read", "lines could not be read"))
	}

	if r.Late > 0 {
		fmt.Fprintf(talk, "%s: a larger --window would put them into order\n", stat.Count(r.Late, "line is out of order", "lines are out of order"))
	}

	if r.Requests == 0 {
		fmt.Fprintln(out, "there are no requests")
		return nil
	}

	fmt.Fprintf(out, "%s, from %s to %s\n", stat.Count(r.Requests, "request", "requests"), r.Begin.Format(time.RFC3339), r.End.Format(time.RFC3339))
	fmt.Fprintln(out, r.Waited.sentence("would have waited"))
	fmt.Fprintln(out, r.refusals())
	if r.Unmatched > 0 {
		fmt.Fprintf(out, "%s: they pass\n", stat.Count(r.Unmatched, "request matches no policy", "requests match no policy"))
	}

	t := table{titles: []string{"POLICY", "LIMIT", "REQUESTS", "HELD", "MEDIAN", "P99", "LONGEST", "REFUSED"}}
	for _, p := range r.Policies {
		if p.Shadow {
			t.add(p.Policy, p.Limit, p.Requests, "only counts: "+p.Would.sentence("would have waited longer"))
			continue
		}

		d := p.Waits.all
		t.add(p.Policy, p.Limit, p.Requests, p.Waits.Held,
			brief(d.Quantile(0.5)), brief(d.Quantile(0.99)), brief(d.Max), p.Refused)
	}

	if _, err := fmt.Fprint(out, "\n", t.text()); err != nil {
		return err
	}

	// A log without starts has no chart.
	if len(r.Chart.rates) == 0 {
		return nil
	}

	_, err := fmt.Fprint(out, "\n", r.Chart.text())
	return err
}

// refusals says how many requests would have been refused, with --max-wait if that is a duration, and how many of them were refused because too many
// waited to be simulated.
func (r *logReplay) refusals() string {
	if r.Refused == 0 {
		return "none would have been refused"
	}
	text := fmt.Sprintf("%d would have been refused", r.Refused)

	// A MaxWait of 0 means forever, and a negative one no wait.
	if r.MaxWait > 0 {
		text += fmt.Sprintf(": --max-wait is %s", r.engine.MaxWait)
	}
	if r.Crowded > 0 {
		text += fmt.Sprintf("; %d of them because too many waited to be simulated", r.Crowded)
	}
	return text
}

// A progress is a line on a terminal that is overwritten as a computation advances. It writes nothing to
// anything but a terminal. Methods of a nil progress do nothing.
type progress struct {
	out   io.Writer
	begun time.Time
	last  time.Time // time of the last write, zero before
}

// A progress appears after progressAfter, so that quick computations show none,
// and is updated every progressEvery.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// newProgress returns the progress of a command on stderr, or nil if stderr is no terminal.
func newProgress(c *cobra.Command) *progress {
	if !isTerminal(c.ErrOrStderr()) {
		return nil
	}
	return &progress{out: c.ErrOrStderr(), begun: time.Now()}
}

// show shows the finished part of the work, from 0 to 1.
func (p *progress) show(done float64) {
	if p == nil {
		return
	}
	p.showAt(done, time.Now())
}

// showAt is show at a given moment. It writes nothing before progressAfter, and nothing within progressEvery of the last write.
func (p *progress) showAt(done float64, now time.Time) {
	spent := now.Sub(p.begun)
	if spent < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}

	p.last = now
	text := fmt.Sprintf("%.0f %%", 100*done)
	if done > 0 {
		left := time.Duration(float64(spent) * (1 - done) / done)
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	fmt.Fprint(p.out, "\r\x1b[K"+text)
}

// end erases the line.
func (p *progress) end() {
	if p != nil && !p.last.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.last = time.Time{}
	}
}
