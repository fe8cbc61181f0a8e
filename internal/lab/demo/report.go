package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/demo/chart"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1 // something was lost, refused or banned
	exitUsage       = 2
	exitInterrupted = 130
)

// A report is what happened, counted by the upstream.
type report struct {
	options
	*pull
	upstream    *dingtalktest.Server
	log         []dingtalktest.Arrival
	begin       time.Time
	took        time.Duration
	interrupted bool
}

// sharing says where the budgets are.
func (o options) sharing() string {
	switch {
	case o.unthrottled:
		return "without the library"
	case o.redis != "":
		return "in processes that share a Redis"
	}
	return "in one process"
}

// refused is how many calls of the fleet were refused, by a ban or otherwise.
func (r report) refused() (n int) {
	for _, a := range r.log {
		if a.Refusal != "" && a.API != outsiderPath {
			n++
		}
	}
	return n
}

// clean reports whether everything came, once from each department, and nothing was
// refused, except for a ban that was provoked.
func (r report) clean() bool {
	for _, departments := range r.found {
		if len(slices.Compact(slices.Sorted(slices.Values(departments)))) < len(departments) {
			return false
		}
	}
	if r.lost > 0 || len(r.found) != r.people {
		return false
	}
	if r.provoke {
		return r.upstream.Bans() == 1 && r.refused() == silenceIn(r.log).answered
	}
	return r.refused() == 0
}

func (r report) exitCode() int {
	switch {
	case r.interrupted:
		return exitInterrupted
	case r.clean():
		return exitDone
	}
	return exitFailed
}

// print writes the report.
func (r report) print(w io.Writer) {
	fmt.Fprintf(w, "\npulled     %d of %d people in %.1f s\n", len(r.found), r.people, r.took.Seconds())
	fmt.Fprintf(w, "lost       %d calls\n", r.lost)
	if r.reason != nil {
		fmt.Fprintf(w, "reason     %v\n", r.reason)
	}
	if r.provoke {
		silenceIn(r.log).print(w)
	} else {
		fmt.Fprintf(w, "\n%v\n", r.upstream)
	}
	fmt.Fprintln(w, r.verdict())
}

// verdict sums the run up.
func (r report) verdict() string {
	switch {
	case r.interrupted:
		return "Interrupted."
	case r.clean() && r.provoke:
		return fmt.Sprintf("Another program behind the same address had it banned. All %d nodes stopped, waited\n"+
			"until the ban was over, and finished the job: nobody is missing.", r.nodes)
	case r.clean():
		return "Everybody is there, and DingTalk refused nothing."
	case r.provoke && r.upstream.Bans() == 0:
		return "The job was done before the outsider had the address banned: give it more -people."
	case r.unthrottled:
		return "Without the library DingTalk refuses what is too much and then bans the address:\n" +
			"nothing behind it gets through for five minutes."
	}

	return "The address book is not complete, or DingTalk refused something: see above."
}

// picture writes the calls of each second as an SVG file.
func (r report) picture(path string) error {
	c := chart.Chart{
		Title: fmt.Sprintf("%d nodes pull an address book from DingTalk", r.nodes),
		Subtitle: fmt.Sprintf("%d people in %.1f s · at most %d calls of one API in any second · %d refused · bans: %d",
			len(r.found), r.took.Seconds(), max(r.upstream.Most(departmentList, time.Second), r.upstream.Most(userList, time.Second)),
			r.refused(), r.upstream.Bans()),
		Limit: dingtalk.Standard.PerSecond,
	}

	if r.provoke {
		c.Title += ", and a ban stops them"
		c.Gap = silenceIn(r.log).gap(r.begin)
	}

	for _, api := range []string{userList, departmentList, accessToken} {
		c.Series = append(c.Series, chart.Series{Name: api, Counts: r.perSecond(api)})
	}

	f, err := os.Create(path)
	if err != nil {
		return err
	}

	defer f.Close() // again, if Draw failed
	if err := c.Draw(f); err != nil {
		return err
	}

	return f.Close()
}

// perSecond counts the arrivals of an API in each second of the run.
func (r report) perSecond(api string) (counts []int) {
	for _, a := range r.log {
		if a.API == api {
			second := int(a.At.Sub(r.begin) / time.Second)
			counts = append(counts, slices.Repeat([]int{0}, max(0, second+1-len(counts)))...)
			counts[second]++
		}
	}
	return counts
}
