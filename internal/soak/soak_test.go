package soak

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithoutRaceIsRun looks up that make test runs the packages once more, without
// the race detector, whose tests are left out with it. Otherwise they would
// not be run at all.
func TestWithoutRaceIsRun(t *testing.T) {
	root := os.DirFS("../..")
	var want []string
	require.NoError(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || path.Dir(name) == "internal/soak" {
			return err
		}
		source, err := fs.ReadFile(root, name)
		if dir := "./" + path.Dir(name); strings.Contains(string(source), "soak.WithoutRace(") && !slices.Contains(want, dir) {
			want = append(want, dir)
		}
		return err
	}))
	makefile, err := fs.ReadFile(root, "Makefile")
	require.NoError(t, err)
	list := regexp.MustCompile(`(?m)^WITHOUT_RACE = (.*)$`).FindSubmatch(makefile)
	require.NotNil(t, list)
	require.ElementsMatch(t, want, strings.Fields(string(list[1])))
	require.Regexp(t, `(?m)^test: .*\n(?:\t.*\n)*\t.* test-without-race$`, string(makefile))
	require.Regexp(t, `(?m)^test-without-race:\n\t@\$\(SHORT\) \$\(WITHOUT_RACE\)$`, string(makefile))
	require.NotRegexp(t, `(?m)^SHORT = .*-race`, string(makefile))
}
