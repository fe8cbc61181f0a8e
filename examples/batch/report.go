package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/internal/svg"
)

// A report is the record of a run.
type report struct {
	took    time.Duration
	failed  error // why the job is not done, or nil
	sources []*source
	counts  [2][]downstream.Call // of all callers, as the services counted them since the job began
	job     []wait
	users   []waiting
}

// A waiting is how long the calls of one caller waited.
type waiting struct {
	who string
	all []wait
}

// count reads the calls that the services counted since the job began.
func (r *report) count(address string, begin time.Time) error {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + address + "/counts")
	if err != nil {
		return err
	}

	defer resp.Body.Close()
	var counts downstream.Counts
	if err := json.NewDecoder(resp.Body).Decode(&counts); err != nil {
		return err
	}

	// The services may have run before the job: count from its beginning, by their clock.
	began := counts.Now - time.Since(begin)
	for _, c := range counts.Calls {
		c.At -= began
		if c.At >= 0 {
			of := 0
			if c.Query {
				of = 1
			}
			r.counts[of] = append(r.counts[of], c)
		}
	}

	return nil
}

// print writes the report.
func (r *report) print(w io.Writer) {
	pages, found, done := 0, 0, 0
	for _, s := range r.sources {
		pages, found, done = pages+s.pages, found+s.found, done+s.found+int(s.pulled.Load())
	}

	fmt.Fprintf(w, "\n%d of %d pages are there after %.1f s", done, pages, r.took.Seconds())
	if found > 0 {
		fmt.Fprintf(w, "; %d were there before", found)
	}
	if r.failed != nil {
		fmt.Fprint(w, "\nthe job is not done: the same command pulls the rest")
	}

	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "source\tpages\trows\tcalls\trefused\tmost in any second\tquota used")

	for i, s := range r.sources {
		calls, limit := r.counts[i], s.policy.Limit.N()
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d of %d\t%s\n", s.tally.source, s.pulled.Load(), s.rows.Load(),
			len(calls), refused(calls), most(calls), limit, used(calls, limit))
	}

	fmt.Fprintln(t)
	fmt.Fprintln(t, "who waited for a start\tcalls\thalf at most\t99 % at most\tlongest")

	for _, who := range append([]waiting{{"the job", r.job}}, r.users...) {
		lengths := who.lengths()
		fmt.Fprintf(t, "%s\t%d\t%v\t%v\t%v\n", who.who, len(lengths), rounded(stat.Quantile(lengths, 0.5)),
			rounded(stat.Quantile(lengths, 0.99)), rounded(stat.Quantile(lengths, 1)))
	}

	t.Flush()
	fmt.Fprintln(w)
}

// lengths returns how long the calls waited.
func (w *waiting) lengths() (all []time.Duration) {
	for _, one := range w.all {
		all = append(all, one.length)
	}
	return all
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// times returns when calls came.
func times(calls []downstream.Call) (all []time.Duration) {
	for _, c := range calls {
		all = append(all, c.At)
	}
	return all
}

// refused returns how many calls were refused.
func refused(calls []downstream.Call) (n int) {
	for _, c := range calls {
		if c.Refused {
			n++
		}
	}
	return n
}

// most returns the largest number of calls in any second.
func most(calls []downstream.Call) int { return stat.Most(times(calls), time.Second) }

// used returns which share of a limit was used until the job's last call.
func used(calls []downstream.Call, limit int) string {
	var last time.Duration
	for _, c := range calls {
		if !c.OfUser {
			last = max(last, c.At)
		}
	}
	if last < 2*time.Second {
		return "–" // meaningless for a job this short
	}
	return fmt.Sprintf("%.0f %%", 100*stat.Used(times(calls), 0, last, limit, time.Second))
}

// second returns in which second of the job a call came.
func second(at time.Duration) int { return int(at / time.Second) }

// lastCall returns when the last call came.
func (r *report) lastCall() time.Duration {
	last := time.Second
	for _, calls := range r.counts {
		if len(calls) > 0 {
			last = max(last, slices.MaxFunc(calls, func(a, b downstream.Call) int { return cmp.Compare(a.At, b.At) }).At)
		}
	}
	return last
}

// Sizes of the picture: two plots of calls, and one of waits, one below the
// next.
const (
	pictureWidth       = 860.0
	plotLeft, plotWide = 68.0, pictureWidth - 68.0 - svg.Margin
	plotHigh, plotStep = 112.0, 188.0
	firstPlot          = 118.0
	nameAbove          = 26.0 // distance above its plot
	pictureHigh        = firstPlot + 3*plotStep - 18
)

const pictureRules = `  .name { font-weight: 600 }
  .base { stroke: #8c959f }
  .limit { stroke: #b35900; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .mark { fill: #b35900; text-anchor: end }
  .tick { fill: #59636e; text-anchor: middle }
  .scale { fill: #59636e; text-anchor: end }
  .job { fill: #0969da }
  .user { fill: #1a9e8f }
  .refused { fill: #cf222e }
  .beside { fill: #bf8700 }
`

const pictureDark = `    .base { stroke: #656c76 }
    .limit { stroke: #f0883e }
    .mark { fill: #f0883e }
    .tick, .scale { fill: #9198a1 }
    .job { fill: #4493f8 }
    .user { fill: #3fc7b6 }
    .refused { fill: #f85149 }
    .beside { fill: #d29922 }
`

// A drawing is an unfinished picture.
type drawing struct {
	*svg.Drawing
	seconds int // length of the time axis
}

// picture draws the calls of each second as the services counted them, and the waits of users.
func (r *report) picture() string {
	var notes []string
	for i, s := range r.sources {
		notes = append(notes, fmt.Sprintf("%s: at most %d of %d calls in any second, %d refused", s.tally.source, most(r.counts[i]), s.policy.Limit.N(), refused(r.counts[i])))
	}
	d := &drawing{svg.New(pictureWidth, pictureHigh, "A job beside users, under the limits of two services", strings.Join(notes, " · "), pictureRules, pictureDark), second(r.lastCall()) + 1}
	for i, s := range r.sources {
		d.calls(firstPlot+float64(i)*plotStep, s.tally.source+": calls in each second", r.counts[i], s.policy.Limit.N())
	}
	d.waits(firstPlot+2*plotStep, r.users)
	return d.String()
}

// x returns the position of a moment.
func (d *drawing) x(at time.Duration) float64 {
	return plotLeft + plotWide*at.Seconds()/float64(d.seconds)
}

// axes draws the axes of a plot and its name. top is the value at the top.
func (d *drawing) axes(top float64, name, high string) {
	base := top + plotHigh
	d.Text("name", svg.Margin, top-nameAbove, name)
	d.Line("base", plotLeft, base, plotLeft+plotWide, base)
	d.Text("scale", plotLeft-8, top+5, high)
	d.Text("scale", plotLeft-8, base+4, "0")
	every := int(math.Ceil(float64(d.seconds) / 20))
	for s := 0; s < d.seconds; s += every {
		d.Text("tick", d.x(time.Duration(s)*time.Second), base+18, fmt.Sprint(s))
	}
}

// calls draws the calls of each second: the job's, the users' above them, and refusals.
func (d *drawing) calls(top float64, name string, calls []downstream.Call, limit int) {
	kinds := []string{"job", "user", "refused"}
	counts := make([][3]int, d.seconds)

	high := limit
	for _, c := range calls {
		kind := 0
		switch {
		case c.Refused:
			kind = 2
		case c.OfUser:
			kind = 1
		}

		// The last calls may come after the last whole second.
		n := &counts[min(second(c.At), d.seconds-1)]
		n[kind]++
		high = max(high, n[0]+n[1]+n[2])
	}

	d.axes(top, name, fmt.Sprint(high))
	slot := plotWide / float64(d.seconds)

	unit := plotHigh / float64(high)
	for s, n := range counts {
		y := top + plotHigh
		for kind, count := range n {
			y -= unit * float64(count)
			d.Rect(kinds[kind], svg.Box{X: plotLeft + slot*(float64(s)+0.1), Y: y, Width: slot * 0.8, Height: unit * float64(count)})
		}
	}

	y := top + plotHigh - unit*float64(limit)
	d.Line("limit", plotLeft, y, plotLeft+plotWide, y)
	d.Text("mark", plotLeft+plotWide, y-6, fmt.Sprintf("limit: %d in any second", limit))
	d.legend(top-nameAbove, []string{"job", "user", "refused"}, []string{"the job", "users", "refused"})
}

// waits draws each wait of users at the start of its call.
func (d *drawing) waits(top float64, users []waiting) {
	classes := []string{"user", "beside"}
	var names []string

	longest := 100 * time.Millisecond
	for _, u := range users {
		if lengths := u.lengths(); len(lengths) > 0 {
			longest = max(longest, slices.Max(lengths))
		}
	}

	d.axes(top, "How long users waited", longest.Round(10*time.Millisecond).String())
	for i, u := range users {
		names = append(names, u.who)
		for _, w := range u.all {
			d.Circle(classes[i], min(d.x(w.startedAt), plotLeft+plotWide), top+plotHigh*(1-float64(w.length)/float64(longest)), 3)
		}
	}

	d.Text("tick", plotLeft+plotWide/2, top+plotHigh+38, "second of the job")
	d.legend(top-nameAbove, classes, names)
}

// legend names colours, from the right.
func (d *drawing) legend(y float64, classes, names []string) {
	const letter = 6.6 // approximate width of a letter
	x := pictureWidth - svg.Margin
	for i, name := range slices.Backward(names) {
		x -= letter * float64(len(name))
		d.Text("note", x, y, name)
		d.Rect(classes[i], svg.Box{X: x - 18, Y: y - 10, Width: 12, Height: 12, Radius: 2})
		x -= 36
	}
}
