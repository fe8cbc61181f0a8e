package policyfile

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A File is a parsed and checked policy file. It does not change, and is safe for concurrent use.
type File struct {
	// Policies are the rows of the file's presets, then the file's own rows, for
	// [throttle.Config] or [throttle.Transport.SetPolicies].
	Policies []throttle.Policy

	// Named are the rows with "match: none": no request matches them, and callers of
	// [throttle.Limiters] name them. [File.ForLimiters] returns them together with Policies.
	Named []throttle.Policy

	// Tunnels are the hosts to which a proxy carries tunnels of TLS, for [proxy.NewTable]. The limits
	// of these hosts count connections there, and neither count nor hold the requests inside.
	Tunnels []string

	// Runbooks are the addresses of the pages that say what to do while a budget is closed, by the name of
	// the policy. Policies without one are not in it.
	Runbooks map[string]string

	// Tests are the expectations of the file's author: see [File.Check].
	Tests []Test

	name    string
	text    []byte
	effects map[string]effect // by policy
	lines   map[string]int    // by policy: see Line
	rows    []row             // the file's own

	presetRows int // how many of Policies are of presets
}

// Version is the version of the form that this package reads.
const Version = 1

// Parse reads a file from its text, which must not change later. It needs no network and no store.
// Its error is [Errors]: all mistakes at once, in the order of the file, with name as the file's name.
// Parse refuses every table that [throttle.New] refuses.
func Parse(name string, text []byte) (*File, error) {
	r := newReader(name, text)
	n, ok := r.parse(text)
	if !ok || !r.checkVersion(n) {
		return nil, r.errs.sorted()
	}

	// Check the parts that could be read, so that one run finds as many mistakes as possible.
	d, _ := root.read(r, n)
	r.checkPolicies(&d)
	r.checkTunnels(&d)
	r.checkTests(&d)
	if err := r.errs.sorted(); err != nil {
		return nil, err
	}

	// The checks above look at parts. New checks the table as a whole.
	if _, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: d.policies()}); err != nil {
		r.failAt(1, 1, "%v", err) // a mistake without a place of its own
		return nil, r.errs.sorted()
	}

	f := &File{
		name: name, text: text, effects: d.effects(), lines: d.lines(), rows: d.rows,
		Policies: d.policies(), Named: d.named(), Tunnels: d.hosts(), Runbooks: d.runbooks(),
	}
	f.presetRows = len(f.Policies) + len(f.Named) - len(d.rows)
	for _, t := range d.tests {
		f.Tests = append(f.Tests, t.Test)
	}
	return f, nil
}

// Load reads the file at a path. The error is the error of reading it, or [Errors] as of [Parse].
func Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return Parse(path, text)
}

// Line returns the line of a policy, or of the preset that the policy comes from, or 0 without such
// a policy.
func (f *File) Line(policy string) int { return f.lines[policy] }

// Own returns the rows that are the file's own, and not a preset's, and that requests match.
func (f *File) Own() []throttle.Policy { return f.Policies[f.presetRows:] }

// All returns Policies and Named.
func (f *File) All() []throttle.Policy { return slices.Concat(f.Policies, f.Named) }

// ForLimiters returns all rows as [throttle.NewLimiters] takes them: answers come to whoever holds a
// permit, and not to the rows.
func (f *File) ForLimiters() []throttle.Policy { return throttle.WithoutAnswers(f.All()) }

// Loosens returns a reason for each way in which f may hold back less than old: a policy that is
// gone or only counts now, a limit that may allow more, a changed field that may hold back less, a
// new host to which tunnels are carried. Without reasons f holds back at least as much as old, except
// that a 429 may close a new policy with a key in place of policies that it closed before.
func (f *File) Loosens(old *File) []string {
	return append(loosened(old.All(), old.effects, f.effects), tunnelled(old.Tunnels, f.Tunnels)...)
}

// checkVersion reports whether the root of a file is a mapping that begins with a version that this
// package reads. Otherwise it notes a mistake, and the file must not be read further, because fields may
// have a different meaning in a different version.
func (r *reader) checkVersion(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.fail(n, "a file is a mapping that begins with \"version: %d\", and not %s%s", Version, kindOf(n), missingSpace(n.Value))
		return false
	}

	switch key, value := n.Content[0], n.Content[1]; {
	case key.Value != "version":
		r.fail(key, "a file begins with \"version: %d\"", Version)
	case value.Value != fmt.Sprint(Version):
		r.fail(value, "the version is %s; this program reads version %d", kindOf(value), Version)
	default:
		return true
	}

	return false
}

// Check runs the tests of the file, and sends nothing. Its error is [Errors], with a mistake for each
// expectation of a test that is not met.
func (f *File) Check() error {
	transport, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: f.fresh().Policies})
	if err != nil {
		return err // New has accepted the policies in Parse
	}

	// The reader adds excerpts of the text to mistakes.
	r := newReader(f.name, f.text)
	for _, t := range f.Tests {
		differences := f.differences(transport, &t)
		if t.Answer != nil {
			// Rows remember answers, so each answer needs new rows.
			differences = append(differences, f.fresh().answerDifferences(&t)...)
		}

		for _, text := range differences {
			if t.Name != "" {
				text = fmt.Sprintf("test %q: %s", t.Name, text)
			}
			r.failAt(t.Line, t.column, "%s", text)
		}
	}

	return r.errs.sorted()
}

// fresh returns a copy of the file whose Policies have read no answer yet: rows count and learn from
// the answers that they read. A file of the catalog, which Parse does not accept, is returned as it is.
func (f *File) fresh() *File {
	parsed, err := Parse(f.name, f.text)
	if err != nil {
		return f
	}
	renewed := *f
	renewed.Policies = parsed.Policies
	return &renewed
}

// differences returns a text for each difference between what the transport charges for a test's
// request and what the test expects. It names mostShown of the policies that the test does not expect,
// and counts the rest.
func (f *File) differences(transport *throttle.Transport, t *Test) (all []string) {
	charges := make(map[string]store.Charge) // by policy
	for _, c := range transport.Explain(t.Request()) {
		charges[c.Budget.Policy] = c
	}

	for _, e := range t.Expects {
		c, charged := charges[e.Policy]

		// Only policies that the test does not expect remain in charges after the loop.
		delete(charges, e.Policy)

		switch {
		// A free request and a request that does not match look alike, so a cost of 0 expects either.
		case !charged && e.Cost != nil && *e.Cost == 0:
		case !charged:
			all = append(all, fmt.Sprintf("the request does not match policy %q, or is free under it", e.Policy))
		case e.Cost != nil && c.Cost != *e.Cost:
			all = append(all, fmt.Sprintf("the request costs %d under policy %q, and not %d", c.Cost, e.Policy, *e.Cost))
		}

		// A charge does not carry its key, only a hash of policy and key: hash the expected key in the same way.
		if charged && e.Key != nil && c.Budget.Key != store.BudgetOf(e.Policy, *e.Key).Key {
			all = append(all, fmt.Sprintf("the key of the budget of policy %q is not %q", e.Policy, clip(*e.Key)))
		}
	}

	others := slices.Sorted(maps.Keys(charges))
	for i, name := range others {
		// Bound the mistakes of one test: its request may match very many policies.
		if i == mostShown {
			return append(all, fmt.Sprintf("the request matches %d more policies", len(others)-i))
		}
		all = append(all, fmt.Sprintf("the request matches policy %q as well", name))
	}

	return all
}
