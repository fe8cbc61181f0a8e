package dashboard

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// merge applies a merge patch (RFC 7396), as the page does.
func merge(target, patch any) any {
	p, isObject := patch.(document)
	if !isObject {
		return patch
	}
	all, isObject := target.(document)
	if !isObject {
		all = document{}
	}
	for name, value := range p {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = merge(all[name], value)
		}
	}
	return all
}

// randomDocument returns a document without null.
func randomDocument(r *rand.Rand, depth int) document {
	d := make(document)
	for range r.IntN(5) {
		name := fmt.Sprint("n", r.IntN(4))
		switch k := r.IntN(5); {
		case k == 0 && depth > 0:
			d[name] = randomDocument(r, depth-1)
		case k == 1:
			d[name] = []any{float64(r.IntN(2)), "x"}
		default:
			d[name] = float64(r.IntN(3))
		}
	}
	return d
}

// TestDifference: the patch makes one document of another, and is empty only if they are equal.
func TestDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3_000 {
		from, to := randomDocument(r, 3), randomDocument(r, 3)
		patch := difference(from, to)
		require.Equal(t, fmt.Sprint(from) == fmt.Sprint(to), len(patch) == 0, "%v %v", from, to)
		require.Equal(t, any(to), merge(from, patch))
	}
	require.Empty(t, difference(nil, document{}))
}
