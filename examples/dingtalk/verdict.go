package main

import (
	"fmt"
	"os"
	"time"

	"github.com/fleetthrottle/throttle/internal/demo/chart"
)

// clean reports whether everything came and nothing was refused, but for a ban that
// was provoked.
func (r *report) clean() bool {
	bans := 0
	if r.config.provoke {
		bans = 1
	}
	return r.lost == 0 && r.open == 0 && r.twice == 0 && r.refusals() == "0" && r.bans == bans &&
		(r.bans > 0 || r.refused[banned] == 0) && (r.total == 0 || r.people == r.total)
}

func (r *report) exitCode() int {
	switch {
	case r.interrupted:
		return exitInterrupted
	case r.clean():
		return exitDone
	}
	return exitFailed
}

// verdict sums the run up in one sentence; "" if all went well.
func (r *report) verdict() string {
	switch {
	case r.interrupted:
		return fmt.Sprintf("Interrupted: %s people were pulled so far.", thousands(r.people))
	case r.clean() && r.config.provoke:
		return fmt.Sprintf("Another program behind the same address tripped DingTalk's rule. All %d nodes stopped,\n"+
			"waited until the ban was over, and finished the job: nobody is missing.", r.config.nodes)
	case r.clean():
		return ""
	case r.config.provoke && r.bans == 0:
		return "The job was done before the outsider could trip the rule: give it more -people."
	case r.config.unthrottled && r.bans > 0:
		return fmt.Sprintf("Without the library %d nodes sent up to %d calls of one API in a second, where %d are allowed.\n"+
			"DingTalk refused what was too much and then banned the address: nothing behind it\n"+
			"gets through for five minutes. %s of %s people are missing.",
			r.config.nodes, r.most(), r.config.perSecond(), thousands(r.total-r.people), thousands(r.total))
	}
	return "The address book is not complete, or DingTalk said no: see above."
}

// picture writes the calls of each second as an SVG file.
func (r *report) picture(path string) error {
	limit := r.config.perSecond()
	c := chart.Chart{
		Title: fmt.Sprintf("%d nodes pull an address book from DingTalk", r.config.nodes),
		Subtitle: fmt.Sprintf("%s people in %s · at most %d calls of one API in any second · %d refused · %s",
			thousands(r.people), seconds(r.elapsed), r.most(), r.refusedCalls(), plural(r.bans, "ban")),
		Limit: limit,
	}
	if r.config.unthrottled {
		c.Title += ", without the library"
	}
	if r.config.provoke {
		c.Title += ", and a ban stops them"
	}
	begin := r.begin()
	for _, u := range r.apis {
		c.Series = append(c.Series, chart.Series{Name: u.path, Counts: perSecond(u.arrivals, begin)})
	}
	if r.ban != nil {
		c.Gap = r.ban.gap(begin)
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

// refusedCalls is how many calls were refused, by a ban or otherwise.
func (r *report) refusedCalls() int {
	n := 0
	for _, count := range r.refused {
		n += count
	}
	return n
}

// begin is when the first call arrived.
func (r *report) begin() time.Time {
	var first time.Time
	for _, u := range r.apis {
		if first.IsZero() || u.arrivals[0].Before(first) {
			first = u.arrivals[0]
		}
	}
	return first
}

// perSecond counts arrivals in the seconds since begin.
func perSecond(arrivals []time.Time, begin time.Time) []int {
	var counts []int
	for _, at := range arrivals {
		second := int(at.Sub(begin) / time.Second)
		for len(counts) <= second {
			counts = append(counts, 0)
		}
		counts[second]++
	}
	return counts
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
