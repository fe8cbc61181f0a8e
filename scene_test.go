package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/golden"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// The scenes in testdata/scenes are texts: what there is, what happens when, and the trace
// of it. testdata/scenes/README.md has the language. With UPDATE=1 in the environment the
// traces are written anew, for a review of the difference.

func TestScenes(t *testing.T)     { playScenes(t, "") }
func TestP1_Scenes(t *testing.T)  { playScenes(t, "P1") }
func TestP2_Scenes(t *testing.T)  { playScenes(t, "P2") }
func TestP3_Scenes(t *testing.T)  { playScenes(t, "P3") }
func TestP4_Scenes(t *testing.T)  { playScenes(t, "P4") }
func TestP5_Scenes(t *testing.T)  { playScenes(t, "P5") }
func TestP6_Scenes(t *testing.T)  { playScenes(t, "P6") }
func TestP7_Scenes(t *testing.T)  { playScenes(t, "P7") }
func TestP11_Scenes(t *testing.T) { playScenes(t, "P11") }
func TestP12_Scenes(t *testing.T) { playScenes(t, "P12") }
func TestP13_Scenes(t *testing.T) { playScenes(t, "P13") }
func TestP15_Scenes(t *testing.T) { playScenes(t, "P15") }

// playScenes plays the scenes of a promise, or those of none.
func playScenes(t *testing.T, promise string) {
	files, err := filepath.Glob("testdata/scenes/*.txt")
	require.NoError(t, err)
	found := false
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all, err := parseScenes(golden.Numbers(string(text)))
		require.NoError(t, err, file)
		for i := range all {
			if s := &all[i]; s.promise == promise {
				found = true
				for j := range s.cases {
					t.Run(strings.TrimSuffix(s.name+"/"+s.cases[j].name, "/"), func(t *testing.T) { s.play(t, file, &s.cases[j]) })
				}
			}
		}
		if os.Getenv("UPDATE") != "" {
			require.Equal(t, 64, strconv.IntSize, "the files have the numbers of 64 bits")
			require.NoError(t, os.WriteFile(file, []byte(printScenes(all)), 0o644))
		}
	}
	require.True(t, found, "there is no scene of %q", promise)
}

// scenesByTest returns the names by which scenes are played.
func scenesByTest(t *testing.T) (names []string) {
	files, err := filepath.Glob("testdata/scenes/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		for _, s := range must(parseScenes(golden.Numbers(read(t, file)))) {
			test := "TestScenes/"
			if s.promise != "" {
				test = "Test" + s.promise + "_Scenes/"
			}
			names = append(names, test+strings.ReplaceAll(s.name, " ", "_"))
		}
	}
	return names
}

// play plays one case of a scene, and compares what happened with its trace.
func (s *scene) play(t *testing.T, file string, c *sceneCase) {
	synctest.Test(t, func(t *testing.T) {
		script, err := s.parse(c)
		require.NoError(t, err, file)
		got := script.run(t)
		if os.Getenv("UPDATE") != "" {
			c.trace = got
			return
		}
		require.Equal(t, strings.Join(c.trace, "\n"), strings.Join(got, "\n"), "%s:%d", file, c.line)
	})
}

var isPromise = regexp.MustCompile(`^P\d+$`)

// A scene is told once, and may have several cases, each with values for its words that
// begin with "$".
type scene struct {
	promise, name string
	head          string
	body          []string
	line          int // of the first of the body
	cases         []sceneCase
}

type sceneCase struct {
	head, name string
	values     []string // names, which begin with "$", and values, in turn
	line       int
	trace      []string
}

// parseScenes reads a file of scenes.
func parseScenes(text string) (all []scene, err error) {
	names := map[string]bool{}
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		last := &scene{}
		if len(all) > 0 {
			last = &all[len(all)-1]
		}
		switch {
		case strings.HasPrefix(line, "== "):
			s := scene{head: line, name: strings.TrimPrefix(line, "== "), line: i + 2}
			if p, name, ok := strings.Cut(s.name, ": "); ok && isPromise.MatchString(p) {
				s.promise, s.name = p, name
			}
			if names[s.name] {
				return nil, fmt.Errorf("line %d: there are two scenes of this name", i+1)
			}
			names[s.name] = true
			all = append(all, s)
		case len(all) == 0 && line != "" && !strings.HasPrefix(line, "#"):
			return nil, fmt.Errorf("line %d: stands before the first scene", i+1)
		case len(all) == 0:
			all = append(all, scene{head: line, promise: "none"})
		case strings.HasPrefix(line, "---"):
			c := sceneCase{head: line, line: i + 1}
			name, values, _ := strings.Cut(strings.TrimSpace(line[3:]), ": ")
			c.name = name
			for _, v := range strings.Split(values, "; ") {
				if name, value, ok := strings.Cut(v, "="); ok {
					c.values = append(c.values, "$"+name, value)
				} else if v != "" {
					return nil, fmt.Errorf("line %d: %q is no name=value", i+1, v)
				}
			}
			last.cases = append(last.cases, c)
		case len(last.cases) > 0:
			c := &last.cases[len(last.cases)-1]
			c.trace = append(c.trace, line)
		default:
			last.body = append(last.body, line)
		}
	}
	for i := range all {
		if s := &all[i]; s.promise != "none" && len(s.cases) == 0 {
			return nil, fmt.Errorf("line %d: the scene has no --- and no trace", s.line-1)
		}
		for j := range all[i].cases {
			c := &all[i].cases[j]
			for len(c.trace) > 0 && c.trace[len(c.trace)-1] == "" {
				c.trace = c.trace[:len(c.trace)-1]
			}
		}
	}
	return all, nil
}

// printScenes is the inverse of parseScenes.
func printScenes(all []scene) string {
	var lines []string
	for _, s := range all {
		lines = append(lines, s.head)
		lines = append(lines, s.body...)
		for _, c := range s.cases {
			lines = append(append(lines, c.head), c.trace...)
		}
		if len(s.cases) > 0 {
			lines = append(lines, "")
		}
	}
	return strings.Join(slices.Clip(lines), "\n") + "\n"
}

// TestScenesReportAllTheirMistakes with their lines.
func TestScenesReportAllTheirMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"lost":                       "line 1: stands before the first scene",
		"== a\n0s a: get":            "line 1: the scene has no --- and no trace",
		"== a\n---\n== a\n---":       "line 3: there are two scenes of this name",
		"== a\n--- b: c":             `line 2: "c" is no name=value`,
		"== a\n--- b: c=d\nanything": "",
	} {
		_, err := parseScenes(text)
		require.Equal(t, want, strings.TrimPrefix(fmt.Sprint(err), "<nil>"), text)
	}
	all, err := parseScenes("== a\npolicy p: 0/s; jitter x; colour red\n# a comment\nupstream: red\nstore: quick\nshow: colours\n" +
		"policy q: 1/s; key\n0s a: fly\n1s b: get maxwait\nsoon a: get\n2s table x\n---")
	require.NoError(t, err)
	_, err = all[0].parse(&all[0].cases[0])
	require.EqualError(t, err, strings.Join([]string{
		`line 2: throttle: limit "0/s": 0 starts: allow at least 1`,
		`line 2: "x" is no duration`,
		`line 2: a policy has no "colour"`,
		`line 4: "red" is no status`,
		`line 5: a store has no "quick"`,
		`line 6: nobody can show "colours"`,
		`line 7: a word is missing`,
		`line 8: a caller cannot "fly"`,
		`line 9: a word is missing`,
		`line 10: "soon" is no time`,
		`line 11: there is no table "x"`,
	}, "\n"))
}

// A sceneStore notes what is asked of a memstore, and does what its scene says.
type sceneStore struct {
	throttle.Store
	stage *stage

	mu      sync.Mutex
	slow    time.Duration   // Book takes so long before the store decides
	ages    []time.Duration // of the next answers; the last is that of all others
	late    time.Duration   // how long the answer to one booking is on its way
	lateOn  int             // the number of that
	fails   map[string]string
	takes   map[string]time.Duration
	noNews  bool
	note    store.PauseNote
	books   int
	foreign bool // another program has booked starts
	owners  map[any]*caller
	charges map[[16]byte]store.Charge
	watches map[*sceneWatch]bool
	asks    atomic.Int32 // how many calls have no answer yet
}

func newSceneStore(s *stage) *sceneStore {
	return &sceneStore{Store: memstore.New(), stage: s, fails: map[string]string{}, takes: map[string]time.Duration{},
		owners: map[any]*caller{}, charges: map[[16]byte]store.Charge{}, watches: map[*sceneWatch]bool{}}
}

// storeOptions are what a store can be.
var storeOptions = map[string]func(*words) func(*sceneStore){
	"slow": func(w *words) func(*sceneStore) {
		d := w.duration()
		return func(s *sceneStore) { s.slow = d }
	},
	"ages": func(w *words) func(*sceneStore) {
		var ages []time.Duration
		for w.more() {
			ages = append(ages, w.duration())
		}
		return func(s *sceneStore) { s.ages = ages }
	},
	"late": func(w *words) func(*sceneStore) { // the number of the booking, and by how much
		n, d := w.number(), w.duration()
		return func(s *sceneStore) { s.late, s.lateOn = d, n }
	},
	"away": func(w *words) func(*sceneStore) { // from when until when, and so on
		var away [][2]time.Duration
		for w.more() {
			away = append(away, [2]time.Duration{w.duration(), w.duration()})
		}
		return func(s *sceneStore) { s.Store = absent(away...) }
	},
	"news": func(w *words) func(*sceneStore) {
		off := w.next() == "off"
		return func(s *sceneStore) { s.noNews = off }
	},
	"note": func(w *words) func(*sceneStore) {
		note := store.PauseNote{By: w.next(), Reason: w.rest()}
		return func(s *sceneStore) { s.note = note }
	},
}

func init() {
	for _, call := range []string{"book", "confirm", "settle", "pause", "refuse", "reconcile"} {
		storeOptions[call] = func(w *words) func(*sceneStore) { // "confirm no takes 30ms", "refuse hangs", "settle works"
			var fails string
			var takes time.Duration
			for w.more() {
				switch word := w.next(); word {
				case "fails", "hangs", "no", "yes":
					fails = word
				case "works":
				case "takes":
					takes = w.duration()
				default:
					w.fail("a store cannot %q", word)
				}
			}
			return func(s *sceneStore) { s.fails[call], s.takes[call] = fails, takes }
		}
	}
}

func parseStore(text string, w *words) func(*sceneStore) {
	var all []func(*sceneStore)
	w.options("store", text, func(name string) (known bool) {
		option := storeOptions[name]
		if option != nil {
			all = append(all, option(w))
		}
		return option != nil
	})
	return func(s *sceneStore) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, set := range all {
			set(s)
		}
	}
}

// asked notes a call, and does what the scene says about such calls before the store
// decides. It returns a function that notes what the store said.
func (s *sceneStore) asked(ctx context.Context, call string) (fails string, err error) {
	s.asks.Add(1)
	defer s.asks.Add(-1)
	s.mu.Lock()
	fails, takes := s.fails[call], s.takes[call]
	s.stage.mu.Lock()
	s.stage.totals[call]++
	s.stage.mu.Unlock()
	s.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return fails, context.Cause(ctx)
		}
	}
	switch fails {
	case "fails":
		return fails, errAway
	case "hangs":
		<-ctx.Done()
		return fails, context.Cause(ctx)
	}
	return fails, nil
}

// errAway is what a store says that fails.
var errAway = errors.New("throttle: down")

// said notes what the store said.
func (s *sceneStore) said(c *caller, err error, format string, args ...any) {
	if err != nil {
		format, args = format+": %v", append(args, err)
	}
	s.stage.note("calls", c, format, args...)
}

func (s *sceneStore) Book(ctx context.Context, b *store.Booking) (g store.Grant, err error) {
	c := callerOf(ctx)
	_, err = s.asked(ctx, "book")
	s.mu.Lock()
	s.books++
	n, slow := s.books, s.slow
	s.owners[b] = c
	for _, charge := range b.Charges {
		s.charges[charge.Budget.Key] = charge
	}
	s.mu.Unlock()
	text := "book"
	if b.Instead != (store.Handle{}) {
		text += " again"
	}
	if b.Spread != 0 {
		text += " with " + short(b.Spread) + " behind"
	}
	if err == nil {
		time.Sleep(slow)
		g, err = s.Store.Book(ctx, b)
	}
	s.mu.Lock()
	for _, key := range []any{g.Handle, g.Turn} {
		if key != nil && key != (store.Handle{}) {
			s.owners[key] = c
		}
	}
	if len(s.ages) > 0 {
		if g.Age = s.ages[0]; len(s.ages) > 1 {
			s.ages = s.ages[1:]
		}
	}
	late := s.late
	s.mu.Unlock()
	if n == s.lateOn {
		time.Sleep(late)
		g.Age = late
	}
	switch {
	case err != nil:
	case g.OK && g.Wait == 0:
		text += ": now"
	case g.OK:
		text += ": in " + short(g.Wait)
	case g.Ready != nil:
		text += ": in line"
	default:
		text += ": no"
	}
	s.said(c, err, "%s", text)
	return g, err
}

// owner returns whose grant it is.
func (s *sceneStore) owner(call string, b *store.Booking, g store.Grant) *caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage.mu.Lock()
	s.stage.totals[call]++
	s.stage.mu.Unlock()
	for _, key := range []any{b, g.Turn, g.Handle} {
		if c := s.owners[key]; key != nil && c != nil {
			return c
		}
	}
	return nil
}

func (s *sceneStore) Cancel(b *store.Booking, g store.Grant) {
	s.said(s.owner("cancel", b, g), nil, "cancel")
	s.Store.Cancel(b, g)
}

func (s *sceneStore) Release(b *store.Booking, g store.Grant) {
	s.said(s.owner("release", b, g), nil, "release")
	s.Store.Release(b, g)
}

func (s *sceneStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	_, err := s.asked(ctx, "settle")
	if err == nil {
		err = s.Store.Settle(ctx, b, g, costs)
	}
	s.said(callerOf(ctx), err, "settle %v", costs)
	return err
}

func (s *sceneStore) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	_, err := s.asked(ctx, "pause")
	if err == nil {
		err = s.Store.Pause(ctx, c, d)
	}
	s.said(callerOf(ctx), err, "pause %s %s", c.Budget.Policy, short(d))
	return err
}

func (s *sceneStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if _, err = s.asked(ctx, "refuse"); err == nil {
		from, to, err = s.Store.Refuse(ctx, c, r)
	}
	text := ""
	if r.Ago != 0 {
		text += " of " + short(r.Ago) + " ago"
	}
	if r.Took != r.Ago {
		text += " that took " + short(r.Took)
	}
	s.said(callerOf(ctx), err, "refuse %s %s%s", c.Budget.Policy, short(r.Length), text)
	return from, to, err
}

func (s *sceneStore) Reconcile(ctx context.Context, c store.Charge, q throttle.Quota) error {
	_, err := s.asked(ctx, "reconcile")
	if err == nil {
		err = s.Store.Reconcile(ctx, c, q)
	}
	s.said(callerOf(ctx), err, "reconcile %s %d for %s", c.Budget.Policy, q.Left, short(q.Reset))
	return err
}

// PauseNote implements [store.Store].
func (s *sceneStore) PauseNote(throttle.Budget) store.PauseNote { return s.note }

func (s *sceneStore) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	if s.noNews {
		news = nil
	}
	w := &sceneWatch{s.Store.Watch(b, g, news), s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = true
	return w
}

// watching returns how many watches go on.
func (s *sceneStore) watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}

type sceneWatch struct {
	store.Watch
	store *sceneStore
}

func (w *sceneWatch) Confirm(ctx context.Context, maxWait time.Duration) (ok bool, err error) {
	fails, err := w.store.asked(ctx, "confirm")
	if ok = fails == "yes" || fails == "fails"; err == nil && fails == "" {
		ok, err = w.Watch.Confirm(ctx, maxWait)
	}
	text := "confirm"
	if maxWait >= 0 {
		text += " within " + short(maxWait)
	}
	if err == nil && !ok {
		text += ": no"
	}
	w.store.said(callerOf(ctx), err, "%s", text)
	return ok, err
}

func (w *sceneWatch) Stop() {
	w.store.mu.Lock()
	delete(w.store.watches, w)
	w.store.mu.Unlock()
	w.Watch.Stop()
}

// checkIdle checks, when all callers have left, that nothing waits and nothing is held.
func (s *sceneStore) checkIdle() {
	t := s.stage.t
	require.Empty(t, s.watches, "P15: a watch goes on")
	for _, c := range s.charges {
		st, err := s.Store.Status(context.Background(), c)
		require.NoError(t, err)
		if c.Limit.Kind() == store.KindConcurrency {
			require.Zero(t, st.Used, "P13: %s is in flight", c.Budget.Policy)
		}
		if !s.foreign && c.Limit.Kind() != store.KindLeakyBucket { // what a start costs there is yet to come
			require.Zero(t, st.Waiting, "P7: %s waits", c.Budget.Policy)
		}
	}
}
