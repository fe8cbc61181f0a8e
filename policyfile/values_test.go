package policyfile_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
)

// TestValues: what sound requires holds for values near those of the corpus, in each field.
func TestValues(t *testing.T) {
	s, files := compiled(t), fieldFiles()
	const seed = 1
	r := rand.New(rand.NewPCG(seed, seed))
	signs := []rune("0123456789.+-_eExsmhdnuµμyYoOnNfFtrTRuU'\":,{}[]/* ~!&|>#%@ 　：“７a")
	for range soak.Most(200_000, 3_000) {
		f := files[r.IntN(len(files))]
		value := []rune(f.values[r.IntN(len(f.values))])
		for range 1 + r.IntN(3) {
			at := r.IntN(len(value) + 1)
			end := min(at+r.IntN(2), len(value))
			value = slices.Replace(value, at, end, signs[r.IntN(len(signs))])
			if r.IntN(3) == 0 {
				value = slices.Delete(value, at, at+1)
			}
		}
		sound(t, s, []byte(strings.Replace(f.file, "VALUE", string(value), 1)))
	}
}
