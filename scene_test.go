package throttle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/golden"
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
