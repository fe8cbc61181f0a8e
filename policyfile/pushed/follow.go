package pushed

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// DefaultInterval is how often a follower asks for a new file by default.
const DefaultInterval = 2 * time.Second

// Follow keeps the pushed file of the reporter's fleet in force until ctx ends, as
// [policyfile.Follow] does, and lets the reporter report the version in force. o.Read must be nil.
// With a Path, the file there is in force until a pushed file can be read. After that it is not read
// again, even if Redis loses the pushed file. Without a Path, Follow returns an error if nothing is
// pushed or Redis does not answer. Name defaults to "pushed", Interval to [DefaultInterval], and Opening
// is always set.
func Follow(ctx context.Context, reporter *fleet.Reporter, o policyfile.Options) (*policyfile.Follower, error) {
	if o.Read != nil {
		return nil, errors.New("pushed: Read must be nil: what is pushed is read")
	}

	r := &reader{reporter: reporter, path: o.Path}
	report := o.Report
	o.Name, o.Path, o.Read = cmp.Or(o.Name, "pushed"), "", r.read
	o.Opening = true // whoever can write to Redis can push
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}

	o.Report = func(s policyfile.State) {
		// An operator who pushes waits until the reports of the programs name the file.
		reporter.ReportSoon()
		if report != nil {
			report(s)
		}
	}

	f, err := policyfile.Follow(ctx, o)
	if err != nil {
		return nil, err
	}

	reporter.ReportFile(func() fleet.FileState { return stateOf(f, true) })
	return f, nil
}

// Report lets the reporter report which version of its own file the program follows.
func Report(reporter *fleet.Reporter, f *policyfile.Follower) {
	reporter.ReportFile(func() fleet.FileState { return stateOf(f, false) })
}

// A reader reads the pushed file or, until it has read one, the file at a path. One goroutine uses it.
type reader struct {
	reporter *fleet.Reporter
	path     string // "" once a pushed file was read
}

// read returns the text of the pushed file. If it cannot be read, read returns the text of the local file
// as long as no pushed file has been read, and the error from then on.
func (r *reader) read(ctx context.Context) ([]byte, error) {
	text, err := r.reporter.File(ctx)
	if err == nil {
		r.path = "" // never go back to the local file
		return text, nil
	}
	if r.path == "" {
		return nil, err
	}
	return os.ReadFile(r.path)
}

// stateOf returns the state of a follower as a reporter reports it. pushed says whether the follower reads
// pushed files.
func stateOf(f *policyfile.Follower, pushed bool) fleet.FileState {
	s := f.State()
	state := fleet.FileState{
		Reads: policyfile.Version, Pushed: pushed, InForce: s.InForce, Seen: s.Seen,
		For: fleet.Millis{Duration: time.Since(s.Since)}, Loosens: s.Loosens,
		Runbooks: f.File().Runbooks,
	}

	if !s.Until.IsZero() {
		state.Grace.Duration = max(0, time.Until(s.Until)) // the version may be applied a little later than Until
	}

	switch mistakes := policyfile.Mistakes(s.Err); {
	case len(mistakes) > 0:
		state.Err = mistakes[0].Error() // the first mistake alone, without its excerpt
	case s.Err != nil:
		state.Err = s.Err.Error()
	}

	return state
}
