package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/examples/dingtalk/fake"
)

// A progress tells how far the pull is: a bar on a terminal, a line every
// second anywhere else.
type progress struct {
	w     io.Writer
	bar   bool
	total int // people; 0: not known
	every time.Duration
	gauge *gauge

	last  int // people in the line before
	quiet int // lines that were left out since
}

func newProgress(w io.Writer, upstream *fake.Server, g *gauge) *progress {
	p := &progress{w: w, every: time.Second, gauge: g, last: -1}
	if upstream != nil {
		p.total = upstream.Company().People()
	}
	if isTerminal(w) {
		p.bar, p.every = true, 100*time.Millisecond
	}
	return p
}

// isTerminal reports whether somebody is looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show prints the state of the pull, over the line before if there is a bar.
func (p *progress) show(s *pull) {
	line := fmt.Sprintf("%s  %2d calls/s  %2d waiting  %d refused  %d banned",
		p.people(len(s.people)), s.rate(time.Now()), s.waiting(), s.refusals(), s.refused[banned])
	if closed := p.gauge.closed(context.Background()); closed > 0 {
		line += "  address closed for " + closed.Round(time.Second).String()
	}
	if p.bar {
		const erase = "\r\x1b[K"
		fmt.Fprint(p.w, erase, p.drawn(len(s.people)), line)
		return
	}
	if p.tells(len(s.people)) {
		fmt.Fprintln(p.w, line)
	}
}

// tells reports whether a line is worth it: where nothing comes, one in ten is.
func (p *progress) tells(people int) bool {
	if people == p.last && p.quiet < 9 {
		p.quiet++
		return false
	}
	p.last, p.quiet = people, 0
	return true
}

// end leaves the last bar where it is.
func (p *progress) end() {
	if p.bar {
		fmt.Fprint(p.w, "\n\n")
		return
	}
	fmt.Fprintln(p.w)
}

func (p *progress) people(n int) string {
	if p.total == 0 {
		return thousands(n) + " people"
	}
	return fmt.Sprintf("%*s/%s people", len(thousands(p.total)), thousands(n), thousands(p.total))
}

// drawn is the bar itself, in eighths of a character.
func (p *progress) drawn(n int) string {
	const wide = 24
	if p.total == 0 {
		return ""
	}
	eighths := []rune(" ▏▎▍▌▋▊▉")
	filled := wide * 8 * min(n, p.total) / p.total
	bar := strings.Repeat("█", filled/8)
	if filled%8 > 0 {
		bar += string(eighths[filled%8])
	}
	return "▕" + bar + strings.Repeat(" ", wide-len([]rune(bar))) + "▏ "
}
