package policyfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// The defaults of a [Follow].
const (
	DefaultInterval = time.Second
	DefaultGrace    = 30 * time.Second
)

// Options say how a file is followed. Apply and either Path or Read are required.
type Options struct {
	// Path is the file. It is read anew each time, through all links, so that editors
	// that rename, ConfigMaps and network file systems need nothing special.
	Path string

	// Name stands in errors. Defaults to Path.
	Name string

	// Read returns the text, for texts that are not in a file. Defaults to reading Path.
	Read func(context.Context) ([]byte, error)

	// Apply puts a version into force, as [throttle.Transport.SetPolicies] does with its
	// policies. If it fails, the version before stays in force.
	Apply func(*File) error

	// Interval is how often the text is read. A new version counts when two reads in a
	// row agree on it: half a file is a valid file, too. Defaults to [DefaultInterval].
	Interval time.Duration

	// Grace is how long a version waits if it holds back less than the version in force: see
	// [File.Loosens]. Negative means no wait. Defaults to [DefaultGrace].
	Grace time.Duration

	// Opening makes versions wait, too, that open more than the version in force: see [File.Opens].
	// Set it for texts from a place where more people can write than may read the traffic. Defaults
	// to false.
	Opening bool

	// Ceiling bounds what a version may open: a version that opens more than Ceiling is rejected
	// like a mistake. Defaults to nil: no bound.
	Ceiling *File

	// Report is called with the state after each change, by one goroutine at a time. Defaults to
	// nil: no report.
	Report func(State)
}

// A State is the version in force and the version last seen.
type State struct {
	Seen    string    // the generation of the text as it was read last
	InForce string    // the generation of the version in force
	Since   time.Time // when it came into force
	Err     error     // why the version last seen cannot come into force, or why the last read failed, or nil

	// Loosens are the reasons why the version last seen waits: what it holds back no longer, or
	// opens. It comes into force at Until.
	Loosens []string
	Until   time.Time
}

// Generation returns the name of a version: the first 12 hexadecimal digits of its text's SHA-256.
func Generation(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// A Follower keeps a version in force. It is safe for concurrent use.
type Follower struct {
	o     Options
	mu    sync.Mutex
	state State
	file  *File

	// Only the goroutine that reads uses these fields.
	last    []byte // the text as it was read last
	settled bool   // two reads agreed on last, and consider has judged it
	next    *File  // the version of last while it waits, or nil
	wrong   error  // why the version of last is not in force, or nil
}

// check returns all mistakes in the options.
func (o *Options) check() error {
	var mistakes []error
	if o.Apply == nil {
		mistakes = append(mistakes, errors.New("policyfile: Options.Apply is missing: it puts a version into force, as transport.SetPolicies(f.Policies) does"))
	}
	if o.Path == "" && o.Read == nil {
		mistakes = append(mistakes, errors.New("policyfile: Options.Path is missing: name the file, or set Read for a text that is no file"))
	}
	if o.Path != "" && o.Read != nil {
		mistakes = append(mistakes, errors.New("policyfile: Options.Path is never read beside Read: set one of the two; Name is for errors"))
	}
	if o.Interval < 0 {
		mistakes = append(mistakes, fmt.Errorf("policyfile: Options.Interval is %v: use more than 0, or 0 for %v", o.Interval, DefaultInterval))
	}

	return errors.Join(mistakes...)
}

// Follow reads a text and puts it into force at once, and does the same with each new version until ctx
// ends, after the waits that o asks for. It returns an error if o is invalid, or if the first version cannot be read, has mistakes,
// fails its own tests, opens more than the ceiling or cannot be applied. If that happens to a later
// version, the version before stays in force, and [Follower.State] says why.
func Follow(ctx context.Context, o Options) (*Follower, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Read == nil {
		o.Read = func(context.Context) ([]byte, error) { return os.ReadFile(o.Path) }
	}
	if o.Name == "" {
		o.Name = o.Path
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}

	// The first version need not wait: there is no earlier version to keep meanwhile.
	f := &Follower{o: o}
	text, err := o.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}

	file, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	if err := o.Apply(file); err != nil {
		return nil, err
	}

	f.last, f.settled, f.file = text, true, file
	f.state = State{Seen: Generation(text), InForce: Generation(text), Since: time.Now()}
	go f.run(ctx)

	return f, nil
}

// parse reads a version. It returns an error if the version has mistakes, fails its own tests, or opens
// more than the ceiling.
func (f *Follower) parse(text []byte) (*File, error) {
	file, err := Parse(f.o.Name, text)
	if err == nil {
		err = file.Check()
	}
	if err != nil {
		return nil, err
	}

	// A file beyond the ceiling is refused as a whole.
	if f.o.Ceiling != nil {
		if opens := file.Opens(f.o.Ceiling); len(opens) > 0 {
			return nil, fmt.Errorf("policyfile: the file opens what %s does not: %s", f.o.Ceiling.name, strings.Join(opens, "; "))
		}
	}

	return file, nil
}

// State returns the present state.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// File returns the version in force.
func (f *Follower) File() *File {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file
}

// run reads the text in each interval until ctx ends.
func (f *Follower) run(ctx context.Context) {
	ticker := time.NewTicker(f.o.Interval)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		// A read that ctx has ended says nothing about the file.
		text, err := f.o.Read(ctx)
		if ctx.Err() != nil {
			return
		}

		f.look(text, err, time.Now())
	}
}

// look compares the result of a read with the read before, and updates the state. It considers a
// version on which two reads in a row agree, applies a version that has waited for its grace, and
// reports the state if it has changed.
func (f *Follower) look(text []byte, err error, now time.Time) {
	old := f.State()
	state := old
	switch {
	// A failed read changes only Err: the file may be about to be replaced.
	case err != nil:

	// Wait for a second read with the same text: an editor may be in the middle of a write.
	case !bytes.Equal(text, f.last):
		// Forget the waiting version and its mistakes: they are about an earlier text.
		f.last, f.settled, f.next, f.wrong = bytes.Clone(text), false, nil, nil
		state = State{Seen: Generation(text), InForce: old.InForce, Since: old.Since}

	// Two reads agree on a text that has not been judged.
	case !f.settled:
		f.settled = true
		f.consider(&state, now)

	// The grace of a version that loosens is over.
	case f.next != nil && !now.Before(state.Until):
		f.apply(&state, now)
	}

	state.Err = f.wrong
	if err != nil {
		state.Err = fmt.Errorf("policyfile: %w", err)
	}

	f.mu.Lock()
	f.state = state
	f.mu.Unlock()

	// Call the callback without the mutex, and only for changes.
	if f.o.Report != nil && !equal(old, state) {
		f.o.Report(state)
	}
}

// consider judges a version on which two reads agree: it applies the version, lets it wait, or notes why
// it is wrong.
func (f *Follower) consider(s *State, now time.Time) {
	if s.Seen == s.InForce {
		return // the text that is in force came back, so there is nothing to do
	}
	f.next, f.wrong = f.parse(f.last)
	if f.wrong != nil {
		return
	}

	// Compare with the version in force, which may be older than the version seen last.
	s.Loosens = f.next.Loosens(f.File())
	if f.o.Opening {
		s.Loosens = append(s.Loosens, f.next.Opens(f.File())...)
	}

	// Give operators time to undo a change that loosens limits.
	if len(s.Loosens) > 0 && f.o.Grace > 0 {
		s.Until = now.Add(f.o.Grace)
		return
	}

	f.apply(s, now)
}

// apply puts f.next into force, or notes why that is impossible. In both cases no version waits any
// longer.
func (f *Follower) apply(s *State, now time.Time) {
	next := f.next
	f.next, s.Loosens, s.Until = nil, nil, time.Time{}

	// If Apply fails, the version before stays in force.
	f.wrong = f.o.Apply(next)
	if f.wrong != nil {
		return
	}

	s.InForce, s.Since = s.Seen, now
	f.mu.Lock()
	f.file = next
	f.mu.Unlock()
}

// equal reports whether two states say the same. Since and Loosens need no comparison: they change only
// together with a compared field.
func equal(a, b State) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return a.Seen == b.Seen && a.InForce == b.InForce && a.Until.Equal(b.Until) && text(a.Err) == text(b.Err)
}
