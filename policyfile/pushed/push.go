// Package pushed lets programs follow a file of policies that is pushed to their fleet
// through Redis, and lets operators push one:
//
//	reporter, err := fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{})
//	defer reporter.Close()
//	transport, err := throttle.New(throttle.Config{Store: reporter})
//	…
//	_, err = pushed.Follow(ctx, reporter, policyfile.Options{
//		Path:  "policies.yaml", // until something is pushed
//		Apply: func(f *policyfile.File) error { return transport.SetPolicies(f.Policies) },
//	})
//
// The page on [fleets] describes the checks of a push, and how nodes follow it.
//
// [fleets]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/fleet.md
package pushed

import (
	"context"
	"fmt"
	"strings"

	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A Change is a file that is about to be pushed, compared with the file in force.
type Change struct {
	File    *policyfile.File
	Text    []byte
	Instead *fleet.Pushed // the pushed file in force, which File replaces, or nil
	Same    bool          // Instead has the same text

	// Loosens are the reasons for which nodes wait with the file for a grace: what it holds back no
	// longer, and what it opens. See [policyfile.File.Loosens] and [policyfile.File.Opens].
	Loosens []string

	fleet *fleet.Fleet
}

// An UnreadableError says that live nodes follow pushed files, and cannot read this file's version.
type UnreadableError struct {
	Version int
	Nodes   []fleet.Node
}

// Error implements error. It names five nodes at most.
func (e *UnreadableError) Error() string {
	var names []string
	for _, n := range e.Nodes {
		names = append(names, fmt.Sprintf("%s on %s reads version %d (throttle %s)", n.Program, n.Host, n.File.Reads, n.Library))
	}
	return fmt.Sprintf("not every node reads version %d of the form: %s", e.Version, strings.Join(names[:min(len(names), 5)], "; "))
}

// Compare checks a file that is to be pushed to a fleet, and compares it with the file that is pushed
// now. name stands for the file in errors. The file must have at most [fleet.MostText] bytes and no
// mistakes, and must pass its own tests: otherwise the error is [policyfile.Errors]. The error is an
// *[UnreadableError] if live nodes that follow pushed files cannot read the file's version. All remaining
// errors are of Redis, or say that what Redis holds is no pushed file. If the text that is pushed now
// cannot be read, the Change has one reason in Loosens that says so.
func Compare(ctx context.Context, to *fleet.Fleet, name string, text []byte) (*Change, error) {
	if len(text) > fleet.MostText {
		return nil, policyfile.Errors{{File: name, Text: fmt.Sprintf("the file has %d bytes; %d are the most that can be pushed", len(text), fleet.MostText)}}
	}

	file, err := policyfile.Parse(name, text)
	if err != nil {
		return nil, err
	}
	if err := file.Check(); err != nil {
		return nil, err
	}

	nodes, err := to.Nodes(ctx)
	if err != nil {
		return nil, err
	}

	// A silent node may have ended long ago, so it must not block a push.
	unreadable := &UnreadableError{Version: policyfile.Version}
	for _, n := range nodes {
		if !n.Silent && n.File.Pushed && n.File.Reads != policyfile.Version {
			unreadable.Nodes = append(unreadable.Nodes, n)
		}
	}
	if len(unreadable.Nodes) > 0 {
		return nil, unreadable
	}

	instead, err := to.Pull(ctx)
	if err != nil {
		return nil, err
	}
	c := &Change{File: file, Text: text, Instead: instead, fleet: to}

	// Without a pushed file there is nothing to compare with.
	if instead == nil {
		return c, nil
	}

	c.Same = string(instead.Text) == string(text)
	before, err := policyfile.Parse("pushed", instead.Text)
	if err != nil {
		c.Loosens = []string{"what is pushed now cannot be read, so it is not known what changes"}
		return c, nil
	}

	c.Loosens = append(file.Loosens(before), file.Opens(before)...)
	return c, nil
}

// Push pushes the file and returns its number. If the pushed file has changed since Compare, the
// error is a *[fleet.ConflictError]. The audit shows act, by and reason; act is push or rollback.
func (c *Change) Push(ctx context.Context, act, by, reason string) (int64, error) {
	var instead int64
	if c.Instead != nil {
		instead = c.Instead.Number
	}
	return c.fleet.Push(ctx, instead, fleet.Pushed{Generation: policyfile.Generation(c.Text), By: by, Reason: reason, Text: c.Text}, act)
}
