package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fleetthrottle/throttle/examples/batch/downstream"
	"github.com/fleetthrottle/throttle/internal/stat"
)

// A report is what happened while the job ran.
type report struct {
	took    time.Duration
	failed  error // why the job is not done; nil: it is done
	sources []*source
	counts  [2][]downstream.Call // of all callers, as the services have counted them, since the job began
	job     []wait
	users   []waiting
}

// A waiting is how long the calls of one caller waited.
type waiting struct {
	who string
	all []wait
}

// count asks the services what they have counted since the job began.
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
		return "–" // of so short a job the share says nothing
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
