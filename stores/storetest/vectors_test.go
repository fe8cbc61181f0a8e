package storetest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestMistakesInVectors: all are told, each with its line.
func TestMistakesInVectors(t *testing.T) {
	_, err := parseVectors(&reader{file: "x.txt"}, `
no name
  a = 3/s
P1_Some
  a = 3 a second; cost = 1/s
  b = 3/s, tall
  book b cost much -> 0
  book c -> 0
  jump b; at; book -> 0; pause b
  book b; wait 1s -> 0; book b ->
  book b within soon -> 1x soon:
  k: book b -> 0 held c over 1y
  b: book b -> 0
  status b -> tall 3 used; status b -> tall 3
  refuse b 1m -> 40
  every i in 3,2..5: wait 1s
P1_Other
  for a; b in 1 | 2; 3
  k: book
  cancel k -> 0; cancel l
  b = 1/s; e = 1/s, beside d; f = 1/s,
  book b -> 1s x0; again k -> none
`)
	require.Error(t, err)
	require.Equal(t, strings.TrimSpace(mistakes), err.Error())
}

const mistakes = `
x.txt:2: "no name" is no name of a vector, like P1_SlidingBurst
x.txt:5: "3 a second" is no limit that throttle.ParseLimit reads
x.txt:5: "cost" is a caller, or a word of the language
x.txt:6: "tall" says nothing of a budget
x.txt:7: "much" is no number
x.txt:8: "c" is neither a budget, nor a caller, nor a word of the language
x.txt:8: book without a charge
x.txt:9: "jump" is no move
x.txt:9: at without a time
x.txt:9: book without a charge
x.txt:9: pause without a time
x.txt:10: book says nothing of its answer
x.txt:10: wait has no answer
x.txt:10: book says nothing of its answer
x.txt:11: "soon" is no time
x.txt:11: "1x" is no time
x.txt:11: a time is missing
x.txt:12: "c" is no budget
x.txt:12: "1y" is no time
x.txt:13: "b" is a budget, or a word of the language
x.txt:14: a field without a value
x.txt:14: "tall" is no field of a status
x.txt:15: 1 ceilings, want the one before and the one after
x.txt:16: "3,2..5" does not rise
x.txt:18: 1 values for 2 names in "1"
x.txt:19: book says nothing of its answer
x.txt:19: book without a charge
x.txt:20: cancel has no answer
x.txt:20: "l" is neither a budget, nor a caller, nor a word of the language
x.txt:20: cancel without a caller
x.txt:21: "d" is no budget
x.txt:21: "" says nothing of a budget
x.txt:22: "0" is less than once
x.txt:22: "none" are no answers to again`

// TestNoMistakesInVectors: the files have none.
func TestNoMistakesInVectors(t *testing.T) {
	_, err := vectors()
	require.NoError(t, err)
}

// TestMistakesInPlay: what cannot be played fails with its line.
func TestMistakesInPlay(t *testing.T) {
	for text, want := range map[string]string{
		"k: book a -> 0; leave k":         "x.txt:3: the move cannot be made: ",
		"k: book a -> 0; settle k[4] 1":   "x.txt:3: k has 1 callers",
		"k: book a -> 0; cancel k 1 2":    "x.txt:3: the move cannot be made: ",
		"k: book a -> 0; good k":          "x.txt:3: the move cannot be made: ",
		"crowd a choosing x2 -> 0 1s+1us": "x.txt:3: the move cannot be made: ",
	} {
		list, err := parseVectors(&reader{file: "x.txt"}, "P1_Some\n  a = 1/s\n  "+text)
		require.NoError(t, err)
		got := failure(t, check{"P1_Some", list[0].run}, func() store.Store { return memstore.New() })
		require.Contains(t, got, want)
	}
}

// TestOrderIsOfThoseWhoBegin: whoever left before its start began before nobody.
func TestOrderIsOfThoseWhoBegin(t *testing.T) {
	list, err := parseVectors(&reader{file: "x.txt"}, "P5_Some\n  a = 1/s\n  v: come a x4; leave v[2]; over v 10s; order v")
	require.NoError(t, err)
	require.Empty(t, failure(t, check{"P5_Some", list[0].run}, func() store.Store { return memstore.New() }))
}

// TestThePageOfVectors: the vector on the page is one, and the page names all moves.
func TestThePageOfVectors(t *testing.T) {
	page, err := os.ReadFile("vectors/README.md")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(page), "```\n")
	code, _, _ = strings.Cut(code, "```")
	list, err := parseVectors(&reader{file: "README.md"}, code)
	require.NoError(t, err)
	require.Len(t, list, 1)
	for name := range verbs {
		require.Contains(t, string(page), "`"+name+" ")
	}
}
