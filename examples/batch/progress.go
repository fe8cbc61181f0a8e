package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A progress shows how far the job is and when it will end. The work only counts: a slow store or terminal
// blocks only the goroutine of show.
type progress struct {
	out     io.Writer
	rewrite bool // the output is a terminal: overwrite one line
	status  func(context.Context) (map[throttle.Budget]throttle.Status, error)
	tallies []*tally

	longest int    // longest line on the terminal
	trouble string // trouble in the last line
}

// newProgress returns the progress of sources. status reads their budgets.
func newProgress(out *os.File, status func(context.Context) (map[throttle.Budget]throttle.Status, error), tallies ...*tally) *progress {
	info, err := out.Stat()
	return &progress{out: out, rewrite: err == nil && info.Mode()&os.ModeCharDevice != 0, status: status, tallies: tallies}
}

// columns is the width of the smallest terminal: a longer line cannot be
// overwritten.
const columns = 79

// rateSeconds is the span over which the rate is measured.
const rateSeconds = 10

// show starts to show the progress, and returns the function that ends it. On a terminal it updates every
// second; elsewhere when trouble begins or ends, and after 2, 4, 8 seconds and so on, up to a minute.
func (p *progress) show(ctx context.Context) (hide func()) {
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()

		next := 2
		for second := 1; ; second++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}

			line, trouble := p.line(ctx)
			switch {
			case ctx.Err() != nil: // the store was interrupted
				return
			case p.rewrite:
				fmt.Fprintf(p.out, "\r%-*.*s", p.longest, columns, line)
				// Blanks overwrite the rest of a longer line.
				p.longest = min(max(p.longest, len(line)), columns)
			case second >= next:
				next += min(next, 60)
				fallthrough
			case trouble != p.trouble:
				fmt.Fprintln(p.out, line)
			}

			p.trouble = trouble
		}
	})

	return func() {
		cancel()
		showing.Wait()
		if p.longest > 0 {
			fmt.Fprintf(p.out, "\r%*s\r", p.longest, "")
		}
	}
}

// line returns the present line, and the trouble in it.
func (p *progress) line(ctx context.Context) (line, trouble string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	statuses, err := p.status(ctx)

	var parts []string
	for _, t := range p.tallies {
		// The policy has one budget, so its name is enough.
		status := throttle.Status{} // unknown
		for budget, s := range statuses {
			if budget.Policy == t.policy.Name {
				status = s
			}
		}

		if status.Paused > 0 {
			trouble += t.source + " "
		}

		parts = append(parts, t.text(status.Limit, status.Paused))
	}

	if err != nil {
		parts = append(parts, "the store does not answer: nothing is sent")
		trouble += "store"
	}

	return strings.Join(parts, " | "), trouble
}

// A tally is the progress of one source.
type tally struct {
	source       string
	policy       throttle.Policy // under which the source is called
	share        float64         // of the policy's limit, for this machine
	pages, found int             // of this machine: all, and present at the start

	pulled, rows atomic.Int64 // since the start

	mu          sync.Mutex
	failures    int
	lastFailure error

	before []int64 // pulled at each of the last rateSeconds, oldest first
}

// newTally returns the tally of a folder, for a machine with a share of the policy's limit.
func newTally(policy throttle.Policy, share float64, f *folder) *tally {
	return &tally{source: f.source, policy: policy, share: share, pages: len(f.mine), found: len(f.mine) - len(f.missing())}
}

// add counts a pulled page.
func (t *tally) add(rows int) {
	t.rows.Add(int64(rows))
	t.pulled.Add(1)
}

// fail counts a failed page, and returns the number of failures.
func (t *tally) fail(err error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures++
	t.lastFailure = err
	return t.failures
}

// failed returns the number of failures.
func (t *tally) failed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures
}

// failure returns an error with the number of failures.
func (t *tally) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Errorf("pages of %s failed %d times, at last because: %w", t.source, t.failures, t.lastFailure)
}

// text describes the progress of the source: pulled pages, pages per second, and the remaining time by the
// limit and by the measured rate. Call it once per second.
func (t *tally) text(limit throttle.Limit, closed time.Duration) string {
	pulled := t.pulled.Load()
	rate := 0.0
	if n := len(t.before); n > 0 {
		rate = float64(pulled-t.before[0]) / float64(n)
	}

	t.before = append(t.before, pulled)
	// Keep only the seconds of the rate.
	t.before = t.before[max(0, len(t.before)-rateSeconds):]

	left := t.pages - t.found - int(pulled)
	text := fmt.Sprintf("%s %.1f%%", t.source, 100*float64(t.pages-left)/float64(max(t.pages, 1)))
	if failed := t.failed(); failed > 0 {
		text += fmt.Sprintf(" (%d failures)", failed)
	}
	if left == 0 || limit.N() == 0 { // the store did not tell the limit
		return text
	}

	const jitter = 35 * time.Millisecond // the default of Policy.Jitter

	// The limit allows N starts per window and jitter, and none before a penalty ends.
	window := (limit.Per() + jitter).Seconds()
	soonest := closed + seconds(float64(left)*window/(float64(limit.N())*t.share))
	switch measured := seconds(float64(left) / rate); {
	case closed > 0:
		return text + fmt.Sprintf(" closed for %v, %v left", short(closed), short(soonest))
	case rate == 0:
		return text + fmt.Sprintf(" at least %v left", short(soonest))
	case measured > soonest && short(measured) != short(soonest):
		return text + fmt.Sprintf(" %.1f/s %v-%v left", rate, short(soonest), short(measured))
	}

	return text + fmt.Sprintf(" %.1f/s %v left", rate, short(soonest))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// short rounds a time up, to what a reader wants to know of it.
func short(d time.Duration) string {
	if d < time.Hour {
		return (time.Duration(math.Ceil(d.Seconds())) * time.Second).String()
	}
	return strings.TrimSuffix((time.Duration(math.Ceil(d.Minutes())) * time.Minute).String(), "0s")
}
