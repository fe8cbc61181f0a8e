package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// A progress is a line on a terminal that says how far a computation is, and is written again and again. On anything but a terminal it
// writes nothing. The nil progress writes nothing, too.
type progress struct {
	out   io.Writer
	begun time.Time
	last  time.Time // when the line was written last; zero: not yet
}

// A progress is shown after progressAfter, so that what is quick shows none, and then every progressEvery.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// newProgress returns the progress of a command on its stderr, nil if that is no terminal.
func newProgress(c *cobra.Command) *progress {
	if !isTerminal(c.ErrOrStderr()) {
		return nil
	}
	return &progress{out: c.ErrOrStderr(), begun: time.Now()}
}

// show says that a part of the work is done, from 0 to 1.
func (p *progress) show(done float64) {
	if p == nil {
		return
	}
	p.showAt(done, time.Now())
}

// showAt is show at a moment.
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

// end takes the line away.
func (p *progress) end() {
	if p != nil && !p.last.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.last = time.Time{}
	}
}
