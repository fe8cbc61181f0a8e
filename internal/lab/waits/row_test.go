package waits

import (
	"fmt"
	"strings"
	"time"
)

// A row is one measured figure.
type row struct {
	what   string
	value  string
	target string // "" if nothing is asked of it
	ok     bool
	known  string // the page that says why it is missed by so much
}

func (r row) String() string {
	verdict := "ok"
	switch {
	case r.target == "":
		verdict = ""
	case !r.ok:
		verdict = "**missed**"
		if r.known != "" {
			verdict += ", see " + r.known
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", r.what, r.value, r.target, verdict)
}

// table returns the rows as Markdown.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| what | measured | must reach | |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

// told is a figure that nothing is asked of.
func told(what, format string, args ...any) row {
	return row{what: what, value: fmt.Sprintf(format, args...), ok: true}
}

// asked is a figure of which something is asked.
func asked(what, value, target string, ok bool) row {
	return row{what: what, value: value, target: target, ok: ok}
}

// also adds to the row's figure what helps to read it.
func (r row) also(format string, args ...any) row {
	r.value += "; " + fmt.Sprintf(format, args...)
	return r
}

// knownIn names the page that says why the figure is missed, if it is missed by no more than
// that page says.
func (r row) knownIn(page string, noMore bool) row {
	if noMore {
		r.known = page
	}
	return r
}

// atMost asks for a time that is not longer.
func atMost(what string, got, most time.Duration) row {
	return asked(what, short(got), "≤ "+short(most), got <= most)
}

// atLeast asks for a share of at least so much.
func atLeast(what string, got, least float64) row {
	return asked(what, percent(got), "≥ "+percent(least), got >= least)
}

// within asks for a share between two.
func within(what string, got, least, most float64) row {
	return asked(what, percent(got), percent(least)+" to "+percent(most), got >= least && got <= most)
}

// below asks for a number that is not larger.
func below(what string, got, most float64) row {
	return asked(what, fmt.Sprintf("%.2f", got), fmt.Sprintf("≤ %.2f", most), got <= most)
}

// above asks for a number that is not smaller.
func above(what string, got, least float64) row {
	return asked(what, fmt.Sprintf("%.3g", got), fmt.Sprintf("≥ %.3g", least), got >= least)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// short rounds a time to what matters.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
