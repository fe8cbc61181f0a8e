package main

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestLongForms: a test is long if it asks for its length itself, or a function or a method does that it mentions.
func TestLongForms(t *testing.T) {
	patterns, err := longForms(fstest.MapFS{
		"store/own_test.go": {Data: []byte(`package store
func TestOwn(t *testing.T) { soak.Only(t) }
func TestShort(t *testing.T) { draw(1) }
func TestOfAnotherFile(t *testing.T) { draw(seeds()) }
func TestOfACase(t *testing.T) { t.Run("", scene{}.play) }
func TestPlain(t *testing.T) { soak.WithoutRace(t); play(seeds()) }
func TestMain(m *testing.M) { seeds() }
func BenchmarkLong(b *testing.B) { seeds() }
type scene struct{}
func (s scene) play(t *testing.T) { s.long() }
func (s scene) long() { print(soak.Most(2, 1)) }
`)},
		"store/other_test.go":         {Data: []byte("package store_test\nfunc seeds() int { return soak.Seeds(100, 10) }\n")},
		"short/short_test.go":         {Data: []byte("package short\nfunc TestShort(t *testing.T) {}\n")},
		"page/page_test.go":           {Data: []byte("package page\nfunc TestReadme(t *testing.T) { readme.Vet(t) }\n")},
		"store/store.go":              {Data: []byte("package store\nfunc TestNone() { soak.Only(nil) }\n")},
		"store/testdata/data_test.go": {Data: []byte("no Go")},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"store": "^(TestOfACase|TestOfAnotherFile|TestOwn)$", "page": "^(TestReadme)$"}, patterns)
}

// TestNothingIsForgotten: each folder whose tests ask for their length is among those that make soak runs, unless all of them run without the race detector.
func TestNothingIsForgotten(t *testing.T) {
	root := os.DirFS("../../../..")
	patterns, err := longForms(root)
	require.NoError(t, err)
	require.NoError(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/lab/soak/") {
			return err
		}
		source, err := fs.ReadFile(root, name)
		if strings.Contains(string(source), "soak.Only(") && !strings.Contains(string(source), "soak.WithoutRace(") {
			require.Contains(t, patterns, path.Dir(name), name)
		}
		return err
	}))
}
