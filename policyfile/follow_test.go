package policyfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/policyfile"
)

// A board is a text that can be changed, and what became of it.
type board struct {
	mu      sync.Mutex
	text    string
	err     error
	applied []string // the limits of the first policy
	states  []policyfile.State
	refuse  error
}

func (b *board) put(text string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text, b.err = text, err
}

func (b *board) read(context.Context) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return []byte(b.text), b.err
}

func (b *board) apply(f *policyfile.File) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refuse != nil {
		return b.refuse
	}
	b.applied = append(b.applied, f.Policies[0].Limit.String())
	return nil
}

func (b *board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

func (b *board) options() policyfile.Options {
	return policyfile.Options{Name: "board", Read: b.read, Apply: b.apply, Report: b.report}
}

func (b *board) report(s policyfile.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states = append(b.states, s)
}

func (b *board) reports() []policyfile.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.states)
}

func (b *board) inForce() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.applied)
}

// version is a file with one policy of that limit, and more rows.
func version(limit, more string) string {
	return "version: 1\npolicies:\n  - {name: a, match: example.com/, limit: " + limit + "}\n" + more
}

// follow follows a board in virtual time.
func follow(t *testing.T, b *board, test func(f *policyfile.Follower)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		f, err := policyfile.Follow(ctx, b.options())
		require.NoError(t, err)
		require.Equal(t, []string{"20/s"}, b.inForce())
		pass(time.Millisecond) // so that each look is a little before ours
		test(f)
	})
}

// pass lets time pass, and then waits until all that it brings has been done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFollowTightens: a lower limit is in force when two reads have agreed on it.
func TestFollowTightens(t *testing.T) {
	b := &board{text: version("20/s", "")}
	follow(t, b, func(f *policyfile.Follower) {
		first := f.State().InForce
		b.put(version("10/s", ""), nil)
		pass(time.Second)
		require.Equal(t, []string{"20/s"}, b.inForce())
		require.NotEqual(t, first, f.State().Seen)
		require.Equal(t, first, f.State().InForce)
		pass(time.Second)
		require.Equal(t, []string{"20/s", "10/s"}, b.inForce())
		require.Equal(t, f.State().Seen, f.State().InForce)
		require.Equal(t, "10/s", f.File().Policies[0].Limit.String())
	})
}

// TestFollowHalfAFile: what is there for one read only never comes into force.
func TestFollowHalfAFile(t *testing.T) {
	b := &board{text: version("20/s", "  - {name: b, match: /, limit: 5/s}\n")}
	follow(t, b, func(f *policyfile.Follower) {
		b.put("version: 1\n", nil) // it is being written
		pass(time.Second)
		b.put(version("10/s", "  - {name: b, match: /, limit: 5/s}\n"), nil)
		pass(5 * time.Second)
		require.Equal(t, []string{"20/s", "10/s"}, b.inForce())
	})
}

// TestFollowLoosens: a version that would no longer hold what is held waits, says why, and
// can be taken back meanwhile.
func TestFollowLoosens(t *testing.T) {
	b := &board{text: version("20/s", "  - {name: b, match: /, limit: 5/s}\n")}
	follow(t, b, func(f *policyfile.Follower) {
		b.put(version("40/s", ""), nil)
		pass(2 * time.Second)
		require.Equal(t, []string{`policy "a": its limit goes from 20/s to 40/s`, `policy "b" is gone`}, f.State().Loosens)
		require.Equal(t, policyfile.DefaultGrace, time.Until(f.State().Until)+time.Millisecond)
		b.put(version("20/s", "  - {name: b, match: /, limit: 5/s}\n"), nil)
		pass(time.Minute)
		require.Equal(t, []string{"20/s"}, b.inForce())
		require.Equal(t, f.State().Seen, f.State().InForce)
		require.Empty(t, f.State().Loosens)

		b.put(version("40/s", ""), nil)
		pass(2*time.Second + policyfile.DefaultGrace - time.Second)
		require.Equal(t, []string{"20/s"}, b.inForce())
		pass(time.Second)
		require.Equal(t, []string{"20/s", "40/s"}, b.inForce())
		require.Len(t, b.reports(), 6) // seen, waits, put back, seen, waits, in force
	})
}

// TestFollowMistakes: a bad edit, a version that cannot be applied and a text that cannot
// be read keep the version before, and the state says why.
func TestFollowMistakes(t *testing.T) {
	b := &board{text: version("20/s", "")}
	follow(t, b, func(f *policyfile.Follower) {
		first := f.State().InForce
		b.put(version("20/fortnight", ""), nil)
		pass(2 * time.Second)
		require.ErrorContains(t, f.State().Err, "board:3:")
		b.put("", os.ErrNotExist)
		pass(time.Second)
		require.ErrorIs(t, f.State().Err, os.ErrNotExist)
		b.put(version("20/fortnight", ""), nil)
		pass(time.Second)
		require.ErrorContains(t, f.State().Err, "board:3:")
		b.fail(errors.New("not today"))
		b.put(version("10/s", ""), nil)
		pass(2 * time.Second)
		require.EqualError(t, f.State().Err, "not today")
		require.Equal(t, first, f.State().InForce)
		b.fail(nil)
		b.put(version("9/s", ""), nil)
		pass(2 * time.Second)
		require.NoError(t, f.State().Err)
		require.Equal(t, []string{"20/s", "9/s"}, b.inForce())
	})
}

// failing is a test that a file with one policy does not pass.
const failing = "tests:\n  - {request: GET https://other.com/, policies: [a]}\n"

// TestFollowRunsTests: a version whose own tests fail does not come into force.
func TestFollowRunsTests(t *testing.T) {
	b := &board{text: version("20/s", "")}
	follow(t, b, func(f *policyfile.Follower) {
		b.put(version("10/s", failing), nil)
		pass(2 * time.Second)
		require.ErrorContains(t, f.State().Err, `board:5:5: the request does not match policy "a"`)
		b.put(version("40/s", failing), nil)
		pass(time.Minute)
		require.ErrorContains(t, f.State().Err, `board:5:5: the request does not match policy "a"`)
		require.Equal(t, []string{"20/s"}, b.inForce())
		b.put(version("9/s", "tests:\n  - {request: GET https://example.com/, policies: [a]}\n"), nil)
		pass(2 * time.Second)
		require.Equal(t, []string{"20/s", "9/s"}, b.inForce())
	})
}

// TestFollowStart: a first version that is wrong is an error at once.
func TestFollowStart(t *testing.T) {
	for name, b := range map[string]*board{
		"cannot be read":    {err: os.ErrPermission},
		"cannot be parsed":  {text: "version: 2"},
		"fails its tests":   {text: version("20/s", failing)},
		"cannot be applied": {text: version("20/s", ""), refuse: errors.New("no")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policyfile.Follow(t.Context(), b.options())
			require.Error(t, err)
		})
	}
	_, err := policyfile.Follow(t.Context(), policyfile.Options{})
	require.EqualError(t, err, "policyfile: Options.Apply is missing: it puts a version into force, as transport.SetPolicies(f.Policies) does\n"+
		"policyfile: Options.Path is missing: name the file, or set Read for a text that is no file")
	read := func(context.Context) ([]byte, error) { return nil, nil }
	_, err = policyfile.Follow(t.Context(), policyfile.Options{Apply: func(*policyfile.File) error { return nil }, Path: "a.yaml", Read: read, Interval: -1})
	require.EqualError(t, err, "policyfile: Options.Path is never read beside Read: set one of the two; Name is for errors\n"+
		"policyfile: Options.Interval is -1ns: use more than 0, or 0 for 1s")
}

// TestFollowLinks: a file behind links that are turned over, as those of a ConfigMap, is
// read anew.
func TestFollowLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		in := func(name string) string { return filepath.Join(dir, name) }
		for generation, limit := range map[string]string{"1": "20/s", "2": "10/s"} {
			require.NoError(t, os.Mkdir(in(generation), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(in(generation), "policies.yaml"), []byte(version(limit, "")), 0o644))
		}
		require.NoError(t, os.Symlink("1", in("..data")))
		require.NoError(t, os.Symlink(filepath.Join("..data", "policies.yaml"), in("policies.yaml")))
		b := new(board)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := policyfile.Follow(ctx, policyfile.Options{Path: in("policies.yaml"), Apply: b.apply})
		require.NoError(t, err)

		require.NoError(t, os.Symlink("2", in("..data_tmp")))
		require.NoError(t, os.Rename(in("..data_tmp"), in("..data")))
		pass(2*time.Second + time.Millisecond)
		require.Equal(t, []string{"20/s", "10/s"}, b.inForce())
	})
}
